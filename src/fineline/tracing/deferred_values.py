"""Values that the code has only moved so far: guards on numbers that wait, and texts and tuples of what only the graph knows."""

from __future__ import annotations

from typing import Any

from fineline.cpython.numpy_scalars import NUMBERS
from fineline.guards.source import GuardBuilder, Source
from fineline.identity import AddressMap, IdentityMap


class DeferredValues:
    """The values of one segment that are guarded, or made, when the code uses them, and not before."""

    __slots__ = ("_guards", "numbers", "texts", "tuples", "unsymbolic")

    def __init__(self, guards: GuardBuilder) -> None:
        self._guards = guards
        # Numbers whose guards are deferred.
        self.numbers: IdentityMap[Source] = IdentityMap()
        # Whether there are NumPy's or complex ones among these.
        self.unsymbolic = False
        # Texts of what only the graph knows, each held by its `Text`. What reads one has to look here.
        self.texts: AddressMap[Any] = AddressMap()
        # In fake mode: the tuples that hold numbers that may vary, which have sources, each with symbols in it.
        self.tuples: AddressMap[tuple] = AddressMap()

    def put_off(self, v: object, src: Source) -> None:
        """Defers the guard on a number that code has only moved so far: guards its type."""
        self._guards.check(src, "type", type(v))
        self.numbers[v] = src
        self.unsymbolic = self.unsymbolic or type(v) in NUMBERS or type(v) is complex

    def settle(self, v: object) -> None:
        """Guards the value of a number whose guard was deferred, because the code uses the value."""
        if (src := self.numbers.get(v)) is not None:
            self._guards.check(src, "eq", v)

    def clear(self) -> None:
        for table in (self.numbers, self.texts, self.tuples):
            table.clear()
