"""The node of an autograd.Function whose forward and backward are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.fx import GraphModule, Interpreter

Forward = Callable[..., tuple[Any, tuple[Tensor, ...], tuple[Tensor, ...]]]


class _TwiceDifferentiable(Interpreter):
    """Runs a backward that is going to be differentiated: what turns gradients off in it is for the usual case, and left out."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        return None if target is torch._C._set_grad_enabled else super().call_function(target, args, kwargs)


class _Captured(Function):
    """Runs two graphs, and keeps between them what the user's own class did: under PyTorch's eyes what it had PyTorch keep."""

    # Which results are not differentiable.
    constant: tuple[int, ...]
    # Whether its backward asks for ``saved_tensors``; asked for a second time, PyTorch objects.
    asks: bool

    @staticmethod
    def forward(ctx: Any, run: Forward, backward: GraphModule, *args: Tensor) -> Any:
        out, saved, kept = run(*args)
        ctx.save_for_backward(*saved)
        ctx.kept, ctx.run = kept, backward
        outs = out if isinstance(out, tuple) else (out,)
        ctx.mark_non_differentiable(*[outs[i] for i in ctx._forward_cls.constant])
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        given = (*grads, *(ctx.saved_tensors if ctx._forward_cls.asks else ()), *ctx.kept)
        run = _TwiceDifferentiable(ctx.run).run if torch.is_grad_enabled() else ctx.run
        return (None, None, *run(*given))


class _CapturedOnce(_Captured):
    backward = staticmethod(once_differentiable(_Captured.backward))  # type: ignore[assignment]


def function_node(name: str, constant: tuple[int, ...], asks: bool, once: bool) -> Callable[..., Any]:
    """What a node calls with the two graphs and the tensors that the function was applied to.

    The forward graph gives the results, the tensors saved, and the ones kept on ``ctx`` otherwise; the backward graph takes a gradient
    for each result, and these. A class like the user's, so that gradients, hooks and errors are as ever; `autograd_function_apply` of
    `torch.ops.higher_order` keeps all tensors out of PyTorch's sight, where nothing frees them or sees that they have changed.
    """
    cls: Any = type(name, (_CapturedOnce if once else _Captured,), {"constant": constant, "asks": asks})

    def apply(forward: Forward, backward: GraphModule, *args: Tensor) -> Any:
        return cls.apply(forward, backward, *args)

    apply.__name__ = apply.__qualname__ = f"{name}_apply"
    return apply
