"""Whether two graphs are the same computation, so that one compiled program serves for both."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fineline.backends.eager import CONTEXT
from fineline.guards.evaluate import same_constant

SEQUENCES = frozenset({tuple, list, immutable_list})
TABLES = frozenset({dict, immutable_dict})


def same_graph(a: Graph, b: Graph) -> bool:
    """Node by node the same operators with the same constants; only the names of nodes may differ."""
    if len(a.nodes) != len(b.nodes):
        return False
    twin: dict[Node, Node] = {}
    for x, y in zip(a.nodes, b.nodes, strict=True):
        if x.op != y.op or not (x.op == "placeholder" or x.target is y.target or (type(x.target) is str and x.target == y.target)):
            return False
        if x.op == "get_attr" and not _same_module(a, b, x.target):
            return False
        if not _same(x.args, y.args, twin) or not _same(x.kwargs, y.kwargs, twin):
            return False
        twin[x] = y
    return True


def _same_module(a: Graph, b: Graph, name: Any) -> bool:
    """Sub-graphs of one name are not the same by that."""
    ours, theirs = getattr(a.owning_module, name, None), getattr(b.owning_module, name, None)
    if ours is theirs or ours is None or theirs is None:
        return ours is theirs
    return ours.meta.get(CONTEXT) is theirs.meta.get(CONTEXT) and same_graph(ours.graph, theirs.graph)


def _same(a: Any, b: Any, twin: dict[Node, Node]) -> bool:
    t = type(a)
    if t is Node:
        return twin.get(a) is b
    if t is not type(b):
        return False
    if t in SEQUENCES:
        return len(a) == len(b) and all([_same(x, y, twin) for x, y in zip(a, b, strict=True)])
    if t in TABLES:
        return list(a) == list(b) and all([_same(x, b[k], twin) for k, x in a.items()])
    if t is slice:
        return _same((a.start, a.stop, a.step), (b.start, b.stop, b.step), twin)
    return same_constant(a, b)
