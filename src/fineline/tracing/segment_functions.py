"""The functions that a segment's code has called: which are guarded, which capture looks into, and which CPython may run."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from fineline.identity import AddressMap, AddressSet


class SegmentFunctions:
    """What is known of the functions that one segment has met, so that each is looked at once."""

    __slots__ = ("guarded", "hooks_seen", "pure", "run_through")

    def __init__(self) -> None:
        # Functions whose parts are guarded. Those from outside have sources; of others, made here, nothing is guarded.
        self.guarded = AddressSet()
        # Functions in Python that capture looks into, unless they get attributes -> their code, which tells one from another at its address.
        # They are not held: what closures hold is to go when it goes in eager code.
        self.run_through: AddressMap[CodeType] = AddressMap()
        # Functions that CPython may run -> what that rests on, and holds the function; code that it may not run -> None.
        self.pure: AddressMap[Any] = AddressMap()
        # Whether it is guarded that there are no hooks of all modules.
        self.hooks_seen = False

    def look_into(self, fn: FunctionType) -> None:
        """Notes that capture runs through ``fn``, as long as it has this code."""
        self.run_through[fn] = fn.__code__

    def clear(self) -> None:
        self.guarded.clear()
        self.run_through.clear()
        self.pure.clear()
