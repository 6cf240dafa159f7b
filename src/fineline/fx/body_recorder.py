"""Records graphs that nodes run: first their operands become inputs, then the values that they use from the graph around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.fx import Node

from fineline.fx.graph_module import CapturedGraph, graph_module
from fineline.fx.output_fixups import without_modes
from fineline.fx.recorder import InputSource, Recorder
from fineline.fx.subgraph_recorder import SubRecorder
from fineline.kinds import is_a


class Part(Recorder):
    """A graph of its own. ``numbers``: the symbolic numbers that are lifted, by expression: the node, and the number itself."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # The nodes of symbols that only this graph knows, and of numbers that are computed from them.
        self.own: dict[Any, Node] = {}
        self.computed: dict[Any, Any] = {}

    def own_tensor(self, t: Tensor) -> bool:
        """Returns whether ``t`` has been made in this graph."""
        return self.known(t)

    def number(self, n: Any) -> Node:
        """Returns the input for a symbolic number from the graph around."""
        # The original expression, because later facts about the number change ``expr``.
        key = n.node._expr
        if key not in self.numbers:
            self.numbers[key] = self._hole(n, f"number_{len(self.numbers)}"), n
        return self.numbers[key][0]

    def finished(self, outputs: Any, inputs: Iterable[Node], numbers: Iterable[Any], name: str) -> CapturedGraph:
        """Returns the graph with its inputs in order, the ``numbers`` as the last ones, whether it uses them or not."""
        last = self.graph._root
        for node in [*inputs, *[self.number(n) for n in numbers]]:
            last.append(node)
            last = node
        without_modes(self.graph)
        self.graph.create_node("output", "output", (outputs,), {}, "output")
        return graph_module(self.graph, name, self.nested.attributes())


class BodyRecorder(Part, SubRecorder):
    """A sub-graph that is used as a whole or dropped; until that is known, nothing of it reaches ``parent``."""

    def __init__(self, parent: Recorder) -> None:
        super().__init__(parent)
        self.inputs = []
        self.holes: list[tuple[Node, Tensor]] = []

    def own_tensor(self, t: Tensor) -> bool:
        return self.made(t)

    def hole(self, t: Any) -> Node:
        """Returns the input for a tensor or number that the operator will pass in."""
        node = self._hole(t, f"operand_{len(self.holes)}")
        self.holes.append((node, t))
        return node

    def given(self) -> list[Tensor]:
        """Returns all tensors that the sub-graph gets from outside."""
        return [*self.operands, *[t for _, t in self.holes if is_a(t, Tensor)]]

    def node_outside(self, t: Tensor, read: tuple[str, InputSource | None] | None) -> Node:
        """Returns the node of ``t`` in the graph around. ``read``: how the outermost graph reads ``t``, if that does not know it yet."""
        return self._outer(t, read)

    def graph_of(self, outputs: Any, tensors: Iterable[Tensor], numbers: Iterable[Any], name: str) -> CapturedGraph:
        """Returns the graph, with an input for each of ``tensors`` and ``numbers``, in this order, whether it uses them or not."""
        return self.finished(
            outputs, [*[node for node, _ in self.holes], *[self.find(t) or self._lift(t, None) for t in tensors]], numbers, name
        )
