"""What ``compile`` gives for a function: named like it, bound like it, and called without Python code in between."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from fineline.region.region import Region


class Compiled:
    """A compiled function. ``__wrapped__`` is the original."""

    # A call finds the region's dispatcher in the slot: no Python frame of fineline's runs on a warm call.
    fineline_original = "__wrapped__"
    __slots__ = ("__call__", "__dict__", "__weakref__", "_region")

    def __init__(self, fn: Callable, region: Region) -> None:
        functools.update_wrapper(self, fn)  # type: ignore[arg-type]
        object.__setattr__(self, "_region", region)
        object.__setattr__(self, "__call__", region.entry.dispatcher)

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else types.MethodType(self, obj)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<fineline.compile of {self.__wrapped__!r}>"  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return str(self.__qualname__)  # type: ignore[attr-defined]
