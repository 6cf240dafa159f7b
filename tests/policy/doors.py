"""The two doors of the control surface: fineline's names, and those that PyTorch's users type, after ``install``."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo

import fineline


class Probe:
    """A backend that keeps each graph, and its operators' names."""

    def __init__(self) -> None:
        self.modules: list[Any] = []
        self.graphs: list[list[str]] = []

    def __call__(self, gm: Any, inputs: Any) -> Any:
        self.modules.append(gm)
        self.graphs.append([str(getattr(n.target, "__name__", n.target)) for n in gm.graph.nodes if n.op.startswith("call_")])
        return gm.forward

    @property
    def flat(self) -> list[str]:
        return [name for graph in self.graphs for name in graph]


OURS: dict[str, Any] = {name: (fineline, name) for name in fineline.__all__}
THEIRS: dict[str, Any] = {
    "compile": (torch, "compile"),
    "reset": (torch._dynamo, "reset"),
    "register_backend": (torch._dynamo, "register_backend"),
    "optimize": (torch._dynamo, "optimize"),
    "optimize_assert": (torch._dynamo, "optimize_assert"),
    "run": (torch._dynamo, "run"),
    "explain": (torch._dynamo, "explain"),
    "export": (torch._dynamo, "export"),
    "OptimizedModule": (torch._dynamo, "OptimizedModule"),
    "graph_break": (torch._dynamo, "graph_break"),
    "disallow_in_graph": (torch._dynamo, "disallow_in_graph"),
    "forbid_in_graph": (torch._dynamo, "forbid_in_graph"),
    "error_on_graph_break": (torch._dynamo, "error_on_graph_break"),
    **{
        name: (torch.compiler, name)
        for name in (
            "allow_in_graph", "assume_constant_result", "disable", "is_compiling", "is_dynamo_compiling", "list_backends",
            "nested_compile_region", "set_stance", "substitute_in_graph",
        )
    },
}  # fmt: skip


class Door:
    """A name is looked up when it is used, as it is after ``install``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __getattr__(self, name: str) -> Any:
        home, attribute = (THEIRS if self.kind == "torch" else OURS)[name]
        return getattr(home, attribute)

    def graphs(self, fn: Any, *args: Any, times: int = 3, **how: Any) -> list[list[str]]:
        """The graphs of one capture; each call's result is that of eager."""
        probe = Probe()
        compiled = self.compile(fn, backend=probe, **how)
        for _ in range(times):
            same(compiled(*args), fn(*args))
        return probe.graphs


def same(ours: Any, theirs: Any) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)
