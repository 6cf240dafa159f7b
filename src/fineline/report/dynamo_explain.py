"""The attributes of an explanation under the names of ``torch._dynamo.explain``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from traceback import FrameSummary

from torch.fx import GraphModule
from torch.fx.node import Target

from fineline.report.events import Event


@dataclass(frozen=True)
class BreakReason:
    """The reason of a graph break, and the user's frames there, the outermost first."""

    reason: str
    user_stack: list[FrameSummary]
    graph_break: bool = True


class FamiliarNames:
    """The attributes of PyTorch's ``ExplainOutput``, computed from fineline's own."""

    graphs: list[GraphModule]
    seconds: float

    @property
    @abstractmethod
    def breaks(self) -> list[Event]: ...
    @property
    @abstractmethod
    def guards(self) -> list[str]: ...

    @property
    def graph_count(self) -> int:
        """Returns the number of graphs."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """Returns the number of graph breaks."""
        return len(self.breaks)

    @property
    def break_reasons(self) -> list[BreakReason]:
        """Returns the reason and the frames of each graph break."""
        return [BreakReason(event.reason, _stack(event)) for event in self.breaks]

    @property
    def ops_per_graph(self) -> list[list[Target]]:
        """Returns the functions that each graph calls, without methods of tensors, as PyTorch counts them."""
        return [[node.target for node in gm.graph.nodes if node.op == "call_function"] for gm in self.graphs]

    @property
    def op_count(self) -> int:
        """Returns the number of functions that the graphs call."""
        return sum(map(len, self.ops_per_graph))

    @property
    def out_guards(self) -> list[str]:
        """Returns the guards of all programs in words."""
        return self.guards

    @property
    def compile_times(self) -> str:
        """Returns the duration of the explained call, as text."""
        return f"Function, Runtimes (s)\ncapture and first run, {self.seconds:.4f}"


def _stack(event: Event) -> list[FrameSummary]:
    frames = event.detail.get("stack") or [(event.file, event.line, event.region)]
    # PyTorch names frames as tracebacks do: by the function's own name.
    return [FrameSummary(file, line, name.rpartition(".")[2]) for file, line, name in frames]
