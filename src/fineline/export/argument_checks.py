"""The checks of an exported graph's arguments: a module that raises if the captured code would have taken another path."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from fineline.codegen.programs import ResidualProgram
from fineline.export.paths import Paths
from fineline.export.signature import LITERALS, Parameter
from fineline.fx.standalone_module import Portable, portable
from fineline.guards.postfix import OPERANDS
from fineline.guards.relation import TARGETS, Relation
from fineline.guards.source import Source
from fineline.guards.steps import ACCESS


def asked_module(
    parameters: list[Parameter], roots: Mapping[int, int], segment: ResidualProgram, describe: Callable[[int], str], grad_mode: bool | None
) -> Portable | None:
    """Returns a module with the guards of ``segment`` on its arguments; None if there are none.

    ``describe`` returns a guard's text. ``grad_mode``: the mode at the start, for a graph that changes and restores it.
    """
    asked = _Asked(parameters, roots)
    sources = segment.reads.sources
    for i, (op, _, reg, payload) in enumerate(segment.steps):
        if op == "relation":
            asked.relation(payload, sources, describe(i))
        elif op == "same":
            asked.same(sources[reg], sources[payload], describe(i))
        elif reg >= 0 and op not in ACCESS:
            asked.about(op, sources[reg], payload, describe(i))
    for p, node in zip(parameters, asked.paths.parameters, strict=True):
        if p.root is None:
            asked.equal(node, p.default, f"{p.name} is {p.default!r}")
    if grad_mode is not None:
        asked.equal(asked.graph.call_function(torch.is_grad_enabled), grad_mode, f"the grad mode is {grad_mode}")
    if not asked.any:
        return None
    asked.graph.output(None)
    module = portable(nn.Module(), asked.graph, "Guards")
    # Keeps passes that remove unused nodes from removing the call.
    module._is_impure = True  # type: ignore[assignment]
    return module


class _Asked:
    def __init__(self, parameters: list[Parameter], roots: Mapping[int, int]) -> None:
        self.graph = Graph()
        self.paths = Paths(self.graph, parameters, roots)
        self.any = False

    def about(self, op: str, src: Source, payload: Any, text: str) -> None:
        if op not in ("tensor", "eq", "is", "len", "keys") or (op in ("eq", "is") and type(payload) not in LITERALS):
            return
        node = self.paths.node(src)
        if node is None:
            return
        if op == "tensor":
            self._tensor(node, payload, text)
        elif op == "len":
            self.equal(self._call(len, node), payload, text)
        elif op == "keys":
            self.equal(self._call(list, node), list(payload), text)
        else:
            self.equal(node, payload, text)

    def same(self, src: Source | None, other: Source, text: str) -> None:
        one, two = self.paths.node(src), self.paths.node(other)
        if one is not None and two is not None:
            self._assert(self._call(operator.is_, one, two), text)

    def equal(self, node: Node, value: Any, text: str) -> None:
        self._assert(self._call(operator.is_ if value is None else operator.eq, node, value), text)

    def _tensor(self, node: Node, facts: Any, text: str) -> None:
        self._assert(self._call(torch.is_tensor, node), text)
        self.equal(self._call(getattr, node, "dtype"), facts.dtype, text)
        shape = self._call(getattr, node, "shape")
        if None not in facts.sizes:
            self.equal(shape, facts.sizes, text)
            return
        self.equal(self._call(len, shape), len(facts.sizes), text)
        for d, size in enumerate(facts.sizes):
            if size is not None:
                self.equal(self._call(operator.getitem, shape, d), size, text)

    def relation(self, relation: Relation, sources: list[Source], text: str) -> None:
        if any(op not in ("leaf", "const") and op not in TARGETS for op, _ in relation.code):
            return
        leaves = []
        for leaf in relation.leaves:
            node = self.paths.node(sources[leaf.register])
            if node is None or leaf.kind not in ("size", "number"):
                return
            leaves.append(node if leaf.kind == "number" else self.graph.call_method("size", (node, leaf.at)))
        stack: list[Any] = []
        for op, arg in relation.code:
            if op in ("leaf", "const"):
                stack.append(leaves[arg] if op == "leaf" else arg)
            else:
                start = len(stack) - OPERANDS[op]
                stack[start:] = [self._call(TARGETS[op], *stack[start:])]
        self._assert(stack[0], text)

    def _call(self, fn: Callable, *args: Any) -> Node:
        return self.graph.call_function(fn, args)

    def _assert(self, holds: Any, text: str) -> None:
        self.any = True
        self._call(torch._assert, holds, f"the graph was captured where {text}")
