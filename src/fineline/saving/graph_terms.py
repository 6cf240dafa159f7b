"""Graphs as data: their nodes in order, with targets by name; sub-graphs are parts of them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fineline.backends.eager import CONTEXT
from fineline.fx.function_node import FunctionCall, FunctionNode
from fineline.fx.graph_module import CapturedGraph, graph_module
from fineline.kinds import is_a
from fineline.saving.object_names import NotNamed
from fineline.saving.terms import Term, TermReader, TermWriter

# Data about a node that is kept: where the user's code calls it.
_KEPT = "stack_trace"


def graph_term(gm: GraphModule, writer: TermWriter) -> Term:
    """Returns the data of a graph module; raises `NotNamed` if a target or a constant in it has no name."""
    if isinstance(gm, CapturedGraph):
        gm.ensure_described()
    if gm.meta.get(CONTEXT) is not None:
        raise NotNamed("a checkpoint has a context_fn")
    parts = {name: graph_term(part, writer) for name, part in gm.named_children() if isinstance(part, GraphModule)}
    graph: Graph = gm._graph
    nodes = [_node_term(node, writer) for node in graph.nodes]
    traits = {"reads_numbers": bool(getattr(gm, "reads_numbers", False)), "beyond_aot": str(getattr(gm, "beyond_aot", ""))}
    return {"name": type(gm).__name__, "traits": traits, "parts": parts, "nodes": nodes}


def _node_term(node: Node, writer: TermWriter) -> Term:
    target = writer.term(node.target, functools.partial(_target_term, writer))
    stack = node.meta.get(_KEPT)
    return [node.op, node.name, target, _argument(node.args, writer), _argument(node.kwargs, writer), stack if type(stack) is str else None]


def _target_term(writer: TermWriter, target: Any) -> Term | None:
    """Returns the term of a target that fineline makes for a node; None for any other."""
    if is_a(target, FunctionNode):
        return ["function node", target.name, writer.term(target.ways)]
    return ["function call", writer.term(target.cls)] if is_a(target, FunctionCall) else None


def _argument(a: Any, writer: TermWriter) -> Term:
    if isinstance(a, Node):
        return ["node", a.name]
    if isinstance(a, (tuple, list)) and type(a) is not torch.Size and not hasattr(type(a), "_fields"):
        return ["list" if isinstance(a, list) else "arguments", *[_argument(x, writer) for x in a]]
    if isinstance(a, Mapping):
        return ["dict", *[[writer.term(key), _argument(x, writer)] for key, x in a.items()]]
    if type(a) is slice:
        return ["from node", *[_argument(x, writer) for x in (a.start, a.stop, a.step)]]
    return writer.term(a)


def graph_of(term: Term, reader: TermReader) -> CapturedGraph:
    """Returns the graph module of the data."""
    graph = Graph()
    nodes: dict[str, Node] = {}
    value = functools.partial(reader.value, special=lambda tagged: _read(tagged, nodes, reader))
    for op, name, target, args, kwargs, stack in term["nodes"]:
        node = graph.create_node(op, value(target), tuple(value(args)), value(kwargs), name)
        if stack is not None:
            node.meta[_KEPT] = stack
        nodes[name] = node
    parts: dict[str, GraphModule] = {name: graph_of(part, reader) for name, part in term["parts"].items()}
    return graph_module(graph, term["name"], parts, **term["traits"])


def _read(term: list, nodes: Mapping[str, Node], reader: TermReader) -> Any:
    value = functools.partial(reader.value, special=lambda tagged: _read(tagged, nodes, reader))
    match term[0]:
        case "node":
            return nodes[term[1]]
        case "list":
            return [value(x) for x in term[1:]]
        case "arguments":
            return tuple([value(x) for x in term[1:]])
        case "dict":
            return {value(key): value(x) for key, x in term[1:]}
        case "from node":
            return slice(*[value(x) for x in term[1:]])
        case "function node":
            return FunctionNode(term[1], value(term[2]))
        case "function call":
            return FunctionCall(value(term[1]))
    raise ValueError(term[0])
