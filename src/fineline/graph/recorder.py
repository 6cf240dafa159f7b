"""Records tensor operators as an FX graph while they run for real."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

FX_CONSTANTS = frozenset(
    {type(None), bool, int, float, complex, str, type(...), torch.dtype, torch.device, torch.layout, torch.memory_format}
)


class NotForGraph(Exception):
    """An argument that an FX node can't carry."""


class Recorder:
    """The graph of one segment; tensors made by it are known by identity and held weakly."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.inputs: list[tuple[Node, Any]] = []
        self.calls = 0
        self._nodes: dict[int, tuple[Callable[[], Any], Any]] = {}
        self._last_placeholder: Node | None = None
        self.places: list[tuple[str, int]] = []
        # Storages that an operator wrote into.
        self.mutated: set[int] = set()

    def find(self, t: Tensor) -> Node | None:
        """The node that made ``t``, if this graph did."""
        entry = self._nodes.get(id(t))
        if entry is None or entry[0]() is not t:
            return None
        made = entry[1]
        if type(made) is tuple:
            parent, i = made
            made = self.graph.create_node("call_function", operator.getitem, (parent, i), {})
            self.calls += 1
            self._nodes[id(t)] = (entry[0], made)
        return made

    def known(self, t: Tensor) -> bool:
        entry = self._nodes.get(id(t))
        return entry is not None and entry[0]() is t

    def placeholder(self, t: Tensor, name: str, source: Any) -> Node:
        """A new graph input for a tensor that existed before."""
        graph = self.graph
        name = f"{name}_{len(self.inputs)}"
        with graph.inserting_before(next(iter(graph.nodes), None)) if self._last_placeholder is None else graph.inserting_after(self._last_placeholder):
            node = graph.create_node("placeholder", name, (), {}, name)
        self._last_placeholder = node
        self.inputs.append((node, source))
        self._nodes[id(t)] = (weakref.ref(t), node)
        return node

    def record(self, op: str, target: Any, args: tuple, kwargs: dict, out: Any, name: str | None = None) -> Any:
        """Adds a node whose result is ``out``, which the operator just computed; -> ``out``."""
        node = self.graph.create_node(op, target, args, kwargs)
        self.calls += 1
        if isinstance(out, Tensor):
            entry = self._nodes.get(id(out))
            if entry is None or entry[0]() is not out:
                self._nodes[id(out)] = (weakref.ref(out), node)
        elif isinstance(out, (tuple, list)):
            self._bind_items(out, node)
        return out

    def _bind_items(self, out: Any, node: Node) -> None:
        for i, item in enumerate(out):
            if isinstance(item, Tensor):
                entry = self._nodes.get(id(item))
                if entry is None or entry[0]() is not item:
                    self._nodes[id(item)] = (weakref.ref(item), (node, i))
            elif isinstance(item, (tuple, list)):
                inner = self.graph.create_node("call_function", operator.getitem, (node, i), {})
                self.calls += 1
                self._bind_items(item, inner)

    def alias(self, t: Tensor, node: Node) -> None:
        """Lets ``node`` stand for ``t``."""
        self._nodes[id(t)] = (weakref.ref(t), node)

    def forget(self) -> None:
        self._nodes.clear()
