"""Makes nodes that read values inside the arguments of an exported graph."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

from torch.fx import Graph, Node

from fineline.export.signature import REQUIRED, Parameter
from fineline.guards.source import Source
from fineline.kinds import is_a


class Paths:
    """The nodes of sources, each made at its first use. ``roots`` maps registers to the numbers of arguments."""

    def __init__(self, graph: Graph, parameters: list[Parameter], roots: Mapping[int, int]) -> None:
        self.graph, self._roots = graph, roots
        self._found: dict[int, Node] = {}
        defaults: list[tuple] = [() if p.default is REQUIRED else (p.default,) for p in parameters]
        self.parameters = [graph.create_node("placeholder", p.name, args, {}, p.name) for p, args in zip(parameters, defaults, strict=True)]
        self._arguments = {p.root: node for p, node in zip(parameters, self.parameters, strict=True)}

    def node(self, src: Source | None) -> Node | None:
        """Returns the node that reads a source; None if no argument contains its value."""
        if src is None or src.op == "dict":
            return None
        if src.op == "root":
            return self._arguments.get(self._roots.get(src.reg, -1))
        found = self._found.get(src.reg)
        if found is None and src.parent is not None:
            made = self._step(src, src.parent)
            if made is not None:
                found = self._found[src.reg] = made
        return found

    def _step(self, src: Source, parent: Source) -> Node | None:
        read: Callable = getattr
        if src.op == "key" and parent.op == "dict":
            key, holder = src.key, self.node(parent.parent)
        elif src.op in ("key", "index"):
            read, key, holder = operator.getitem, src.key, self.node(parent)
        elif src.op == "member":
            key, holder = getattr(src.key, "__name__", None), self.node(parent)
        else:
            return None
        if holder is None or not is_a(key, (str, int, float, bool, type(None))) or (key is None and read is getattr):
            return None
        return self.graph.call_function(read, (holder, key))
