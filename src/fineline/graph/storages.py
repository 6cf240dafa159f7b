"""Which memory a tensor lies in."""

from __future__ import annotations

from torch import Tensor


def storage_of(t: Tensor) -> int:
    """The address of its storage; 0 for a number, or a tensor without memory of its own."""
    try:
        return t.untyped_storage()._cdata
    except (AttributeError, RuntimeError, NotImplementedError):
        return 0
