"""The module of a captured graph: its code is written when it first runs, and dropped with the module."""

from __future__ import annotations

import functools
import linecache
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Proxy
from torch.fx._lazy_graph_module import _LazyGraphModule

from fineline.backends.eager import SUBGRAPH_OPERATORS, opened, unannounced
from fineline.kinds import is_a

_TRACERS = [getattr(torch._C._TorchDispatchModeKey, name) for name in ("FAKE", "PROXY", "FUNCTIONAL")]


class CapturedGraph(_LazyGraphModule):
    """A graph module whose code is written when it first runs, and whose nodes are described when the graph is first accessed.

    ``_graph`` is the graph as it has been captured.
    """

    # FX gives each of its modules a class of its own, which a copy does not share.
    _describe: Callable[[], None] | None = None
    # Whether an operator reads a number in a tensor, of a graph captured on real values.
    reads_numbers = False
    # Why AOTAutograd cannot give one of its outputs; "" if it can.
    beyond_aot = ""

    def describe_with(self, describe: Callable[[], None] | None) -> None:
        """Sets the function that the first access to the graph calls; None: no function."""
        type(self)._describe = staticmethod(describe) if describe is not None else None

    def ensure_described(self) -> None:
        """Describes the nodes, unless they are described."""
        if self._describe is not None:
            self._describe()

    def real_recompile(self) -> None:
        """Writes the code with the described names: FX's tracers call this, and take the inputs' names from the code."""
        self.ensure_described()
        self.write_code()

    def write_code(self) -> None:
        """Writes the code of the graph without describing the nodes, if there is none: a program that runs it reads no names."""
        if self._needs_recompile():
            self._real_recompile()
            unannounced(self)
            weakref.finalize(self, _forget_source, getattr(self.forward.__code__, "co_filename", ""))
            if any([node.target in SUBGRAPH_OPERATORS for node in self._graph.nodes]):
                type(self).forward = _opened_when_run(type(self).forward)

    def _lazy_forward(self, *args: Any, **kwargs: Any) -> Any:
        self.write_code()
        return self.forward(*args, **kwargs)

    forward = _lazy_forward


def _describing(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``method``, which shows the graph, so that it describes the nodes first."""

    @functools.wraps(method)
    def call(self: CapturedGraph, *args: Any, **kwargs: Any) -> Any:
        self.ensure_described()
        return method(self, *args, **kwargs)

    return call


for _name in ("__copy__", "__deepcopy__", "__reduce__", "__str__", "print_readable"):
    setattr(CapturedGraph, _name, _describing(getattr(CapturedGraph, _name)))
for _name in ("code", "graph"):
    _found: property = getattr(CapturedGraph, _name)
    setattr(CapturedGraph, _name, property(_describing(_found.fget), _found.fset))  # type: ignore[arg-type]


def _opened_when_run(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``forward`` so that only tracers run it; plain runs of the graph run its sub-graphs without their operators.

    The operator of a checkpoint does not keep random states: dropout in it has another mask when it is computed again (torch 2.13).
    """
    plain: list[GraphModule] = []

    # FX reads the parameters of the function.
    @functools.wraps(forward)
    def run(self: GraphModule, *args: Any, **kwargs: Any) -> Any:
        if any([is_a(a, Proxy) for a in args]) or any([torch._C._get_dispatch_mode(key) is not None for key in _TRACERS]):
            return forward(self, *args, **kwargs)
        if not plain:
            plain.append(opened(self))
        return plain[0].forward(*args, **kwargs)

    return run


def graph_module(graph: Graph, name: str, parts: Mapping[str, GraphModule], reads_numbers: bool = False, beyond_aot: str = "") -> CapturedGraph:
    """Returns the module of ``graph``, whose nodes find other graphs under their names. The others: see `CapturedGraph`."""
    root = torch.nn.Module()
    root.__dict__["_modules"].update(parts)
    made = CapturedGraph(root, graph, name)
    made.reads_numbers, made.beyond_aot = reads_numbers, beyond_aot
    return made


def _forget_source(filename: str) -> None:
    """Drops the source of a graph's code, which FX keeps forever."""
    linecache.cache.pop(filename, None)
    getattr(getattr(torch.fx.graph_module, "_loader", None), "eval_cache", {}).pop(filename, None)
