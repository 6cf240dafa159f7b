"""Faulty backends: each compiles most graphs right, and some operators wrong."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node


def edited(gm: GraphModule, change: Callable[[Node], None]) -> Callable:
    """Returns the code of a copy of the graph, each of whose nodes ``change`` has got."""
    own = GraphModule(gm, copy.deepcopy(gm.graph))
    for node in list(own.graph.nodes):
        change(node)
    own.recompile()
    return own.forward


def tanh_gelu(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Computes gelu by its approximation with tanh."""

    def change(node: Node) -> None:
        if node.target is F.gelu:
            node.kwargs = {**node.kwargs, "approximate": "tanh"}

    return edited(gm, change)


def two_wrong(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Computes gelu by its approximation with tanh, and mish in place of silu."""

    def change(node: Node) -> None:
        if node.target is F.gelu:
            node.kwargs = {"approximate": "tanh"}
        if node.target is F.silu:
            node.target = F.mish

    return edited(gm, change)


def raising(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Can't compile softmax."""
    if any(node.target is torch.softmax for node in gm.graph.nodes):
        raise NotImplementedError("no lowering for softmax")
    return gm.forward


def raising_when_run(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Makes code for softmax that fails."""
    if not any(node.target is torch.softmax for node in gm.graph.nodes):
        return gm.forward

    def run(*args: Any) -> Any:
        raise RuntimeError("illegal memory access")

    return run


def fused_wrong(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Is wrong only where a graph has a sine and, later, a cosine: it fuses the two, and adds a thousandth."""
    nodes = [node for node in gm.graph.nodes if node.target in (torch.sin, torch.cos)]
    first = next((i for i, node in enumerate(nodes) if node.target is torch.sin), len(nodes))
    if not any(node.target is torch.cos for node in nodes[first:]):
        return gm.forward

    def change(node: Node) -> None:
        if node.target is torch.cos:
            node.target = lambda x: torch.cos(x) + 1e-3

    return edited(gm, change)


def wrong_for(name: str, size: int) -> Callable:
    """Returns a backend that is wrong for an operator, ``torch.<name>``, on tensors whose last size is this."""
    right = getattr(torch, name)

    def wrong(*args: Any, **kwargs: Any) -> Any:
        out = right(*args, **kwargs)
        return out + 1 if out.shape[-1] == size else out

    def backend(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        def change(node: Node) -> None:
            if node.target is right:
                node.target = wrong

        return edited(gm, change)

    return backend


class _HalfGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad / 2


def _half(x: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = _HalfGradient.apply(x)
    return out


def wrong_backward(gm: GraphModule, inputs: Sequence[Any]) -> Callable:
    """Computes tanh, and a wrong gradient for it."""

    def change(node: Node) -> None:
        if node.target is torch.tanh:
            node.target = _half

    return edited(gm, change)


class Unsteady:
    """A backend that is wrong in every second graph that it compiles."""

    __name__ = "unsteady"

    def __init__(self) -> None:
        self.compiled = 0

    def __call__(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        self.compiled += 1
        wrong = self.compiled % 2

        def run(*args: Any) -> Any:
            return tuple([out + wrong for out in gm.forward(*args)])

        return run
