"""The operators of ``demo_ops``: a library of kernels that says nothing to compilers, as many do (no ``register_fake``)."""

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
