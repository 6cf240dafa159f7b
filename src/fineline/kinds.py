"""What an object is, by its type alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from builtins import isinstance as is_a
else:

    def is_a(obj: Any, kinds: Any) -> bool:
        """``isinstance()`` that never asks for ``obj.__class__``, which the user's code may answer."""
        return issubclass(type(obj), kinds)


__all__ = ["is_a"]
