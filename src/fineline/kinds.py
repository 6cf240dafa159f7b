"""Checks of an object's type that run no user code."""

from __future__ import annotations

from types import UnionType
from typing import TYPE_CHECKING

import torch


def is_a_in_python(obj: object, kinds: type | UnionType | tuple[type, ...]) -> bool:
    """Returns the result of ``isinstance()``, but never reads ``obj.__class__``, which may run user code."""
    return issubclass(type(obj), kinds)


if TYPE_CHECKING:
    from builtins import isinstance as is_a
else:
    try:
        from fineline._native import is_a
    except ImportError:
        is_a = is_a_in_python


def taken_as_it_is(t: type[torch.Tensor]) -> bool:
    """Returns whether operators treat a tensor as a plain one because its class disables both hooks, as ``nn.Parameter`` does."""
    return t.__torch_function__ is torch._C._disabled_torch_function_impl and t.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl


__all__ = ["is_a", "taken_as_it_is"]
