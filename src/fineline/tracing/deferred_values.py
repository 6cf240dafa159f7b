"""Values that the code has only moved so far: numbers with deferred guards, and texts and tuples whose contents only the graph knows."""

from __future__ import annotations

from typing import Any

from fineline.cpython.numpy_scalars import NUMBERS
from fineline.guards.source import GuardBuilder, Source
from fineline.identity import AddressMap, IdentityMap


class DeferredValues:
    """The values of one segment that are guarded, or made, only when the code uses them."""

    __slots__ = ("_guards", "copies", "numbers", "texts", "tuples", "unsymbolic")

    def __init__(self, guards: GuardBuilder) -> None:
        self._guards = guards
        # Numbers whose guards are deferred.
        self.numbers: IdentityMap[Source] = IdentityMap()
        # Whether these include complex numbers or NumPy's.
        self.unsymbolic = False
        # Texts whose contents only the graph knows; the `Text` in the table keeps each alive. Code that reads a text looks here first.
        self.texts: AddressMap[Any] = AddressMap()
        # In fake mode: tuples with a source that hold varying numbers, each mapped to its copy with symbols.
        self.tuples: AddressMap[tuple] = AddressMap()
        # These copies by the registers of their sources: each read of an attribute in C, as a ``shape``, may make another tuple.
        self.copies: dict[int, tuple] = {}

    def put_off(self, v: object, src: Source) -> None:
        """Guards only the type of a number and defers the guard on its value, because the code has only moved it so far."""
        self._guards.check(src, "type", type(v))
        self.numbers[v] = src
        self.unsymbolic = self.unsymbolic or type(v) in NUMBERS or type(v) is complex

    def settle(self, v: object) -> None:
        """Guards the value of a number whose guard was deferred, because the code uses the value."""
        if (src := self.numbers.get(v)) is not None:
            self._guards.check(src, "eq", v)

    def clear(self) -> None:
        for table in (self.numbers, self.texts, self.tuples, self.copies):
            table.clear()
