"""What an object is, by its type alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch  # noqa: F401  (the native core is linked with its libraries)


def is_a_in_python(obj: Any, kinds: Any) -> bool:
    """``isinstance()`` that never asks for ``obj.__class__``, which the user's code may answer."""
    return issubclass(type(obj), kinds)


if TYPE_CHECKING:
    from builtins import isinstance as is_a
else:
    try:
        from fineline._native import is_a
    except ImportError:
        is_a = is_a_in_python


__all__ = ["is_a"]
