"""Calls under hooks on saved tensors, such as activation checkpointing: code that runs again in the backward pass must save the same.

The capturing call saves the tensors that PyTorch's operators save, a compiled program saves others. Therefore the capture runs as a
trial, whose writes are undone, and then the program runs. If one program cannot replace the call, the function itself runs, now and later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_AUTOGRAD = torch._C._autograd


def hooks_active() -> bool:
    return torch.is_grad_enabled() and _AUTOGRAD._top_saved_tensors_default_hooks(True) is not None


@contextmanager
def saved_plainly() -> Iterator[None]:
    """Hides the tensors that are saved in a block from the user's hooks."""
    _AUTOGRAD._push_saved_tensors_default_hooks(_same, _same)
    try:
        yield
    finally:
        _AUTOGRAD._pop_saved_tensors_default_hooks()


def _same(x: Any) -> Any:
    return x
