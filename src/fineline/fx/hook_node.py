"""The node of a hook on a tensor that the graph makes: autograd calls it with the tensor's gradient, and it runs a graph of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


@torch.fx.has_side_effect
def register_hook(t: Tensor, name: str, hook: Callable[..., tuple[Any, ...]], *values: Any) -> None:
    """Registers ``hook`` on ``t``: a graph of the gradient and of ``values``, the tensors and numbers that the user's hook reads.

    ``name``: that of the user's hook.
    It returns the gradient that replaces the one it was given, or nothing.
    """

    def run(grad: Tensor) -> Any:
        return next(iter(hook(grad, *values)), None)

    # Autograd's errors name the hook.
    run.__name__, run.__qualname__ = name, name
    t.register_hook(run)
