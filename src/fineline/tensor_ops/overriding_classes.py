"""Tensors of classes that override ``__torch_function__``, which sees each call with them and each read of their attributes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fineline.kinds import is_a
from fineline.tracing.plain_values import PLAIN_TENSORS

_PLAIN = Tensor.__torch_function__.__func__  # type: ignore[attr-defined]


def overrides(t: Any) -> bool:
    """Returns whether ``t`` is a tensor whose class overrides ``__torch_function__``."""
    if type(t) in PLAIN_TENSORS or not is_a(t, Tensor):
        return False
    own = getattr(type(t).__torch_function__, "__func__", None)
    return own is not None and own is not _PLAIN
