"""The containers of a segment that are guarded as wholes, or in which objects have been looked up by identity."""

from __future__ import annotations

from typing import Any

from fineline.identity import AddressMap, AddressSet


class GuardedContainers:
    """What one segment's guards say of containers, beyond the items that the code has read."""

    __slots__ = ("expanded", "keys", "lookups")

    def __init__(self) -> None:
        # Containers of which all is guarded; they have sources, which keep them.
        self.expanded = AddressSet()
        # Sets in which objects are looked up by identity. Each `Lookups` knows whether it is about the set that lies there now.
        self.lookups: AddressMap[Any] = AddressMap()
        # Dicts in which objects are looked up by identity; `Keys` may be about several.
        self.keys: AddressMap[Any] = AddressMap()

    def begin_anew(self) -> AddressSet:
        """Makes code that runs next guard all containers that it reads, also those that are guarded; returns these."""
        before, self.expanded = self.expanded, AddressSet()
        return before

    def clear(self) -> None:
        self.expanded.clear()
        self.lookups.clear()
        self.keys.clear()
