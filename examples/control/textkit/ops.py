"""The operators of ``demo_ops``: a library of kernels that says nothing to compilers, as many do (no ``register_fake``).

Beside them, an autograd function: a compiler sees its forward and its backward pass.
"""

from __future__ import annotations

import torch


@torch.library.custom_op("demo_ops::center", mutates_args=())
def center(x: torch.Tensor) -> torch.Tensor:
    return x - x.mean(dim=-1, keepdim=True)


@torch.library.custom_op("demo_ops::scale", mutates_args=())
def scale(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


center.register_autograd(lambda ctx, grad: grad - grad.mean(dim=-1, keepdim=True))


def _keep(ctx: torch.autograd.function.FunctionCtx, inputs: tuple, output: torch.Tensor) -> None:
    ctx.by = inputs[1]  # type: ignore[attr-defined]


scale.register_autograd(lambda ctx, grad: (grad * ctx.by, None), setup_context=_keep)


class ClippedGradient(torch.autograd.Function):
    """Passes a tensor on, and keeps its gradient between -1 and 1."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.clamp(-1, 1)
