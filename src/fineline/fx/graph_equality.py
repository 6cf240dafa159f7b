"""Comparison of graphs: two graphs that describe the same computation share one compiled program."""

from __future__ import annotations

from typing import Any

from torch.fx import Graph, Node
from torch.fx.immutable_collections import immutable_dict, immutable_list

from fineline.backends.eager import CONTEXT
from fineline.guards.evaluate import same_constant

SEQUENCES = frozenset({tuple, list, immutable_list})
TABLES = frozenset({dict, immutable_dict})


def same_graph(a: Graph, b: Graph) -> bool:
    """Returns whether two graphs have, node by node, the same operators with the same constants; names of nodes may differ."""
    twin = _twins(a, b)
    return twin is not None and _same(a.output_node().args, b.output_node().args, twin)


def outputs_as(known: Graph, new: Graph) -> tuple[Node, ...] | None:
    """Returns the outputs with which ``new`` equals ``known``: its own, and more only if it computes these anyway; None if it cannot."""
    twin = _twins(known, new)
    if twin is None:
        return None
    all_given, wanted = known.output_node().args[0], new.output_node().args[0]
    if _same(all_given, wanted, twin):
        return tuple(wanted)  # type: ignore[arg-type]
    given = tuple([twin[node] for node in all_given])  # type: ignore[union-attr, index]
    more = set(given).difference(wanted)  # type: ignore[arg-type]
    fits = len(given) == len(set(given)) == len(more) + len(wanted)  # type: ignore[arg-type]
    return given if fits and all([node.users or node.op == "placeholder" for node in more]) else None


def _twins(a: Graph, b: Graph) -> dict[Node, Node] | None:
    """Returns the nodes of ``b`` by those of ``a``, if the two graphs are the same except for their outputs; otherwise None."""
    if len(a.nodes) != len(b.nodes):
        return None
    twin: dict[Node, Node] = {}
    for x, y in zip(a.nodes, b.nodes, strict=True):
        if x.op != y.op or not (x.op == "placeholder" or x.target is y.target or (type(x.target) is str and x.target == y.target)):
            return None
        if x.op == "get_attr" and not _same_module(a, b, x.target):
            return None
        if x.op not in ("output", "placeholder") and not (_same(x.args, y.args, twin) and _same(x.kwargs, y.kwargs, twin)):
            return None
        twin[x] = y
    return twin


def _same_module(a: Graph, b: Graph, name: Any) -> bool:
    """Returns whether the sub-graphs with this name are the same: an equal name is not enough."""
    ours, theirs = getattr(a.owning_module, name, None), getattr(b.owning_module, name, None)
    if ours is theirs or ours is None or theirs is None:
        return ours is theirs
    return ours.meta.get(CONTEXT) is theirs.meta.get(CONTEXT) and same_graph(ours._graph, theirs._graph)


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
