"""What a segment's code has met, so that each is looked at, and guarded, once: namespaces, functions, and containers as wholes."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any

from fineline.identity import AddressMap, AddressSet, IdentityMap


class Namespaces:
    """What reads of names have found in one segment, so that each name is guarded once."""

    __slots__ = ("bound", "global_values", "owners", "types")

    def __init__(self) -> None:
        # Namespaces -> the values of globals that have been read in them. What runs in a namespace holds it, and one has a source.
        self.global_values: AddressMap[dict[str, Any]] = AddressMap()
        # Instance dicts -> the object, made here, that it belongs to, and that is kept here with its dict.
        self.owners: AddressMap[Any] = AddressMap()
        # Classes -> the names that have been looked up on them.
        self.types: dict[type, Any] = {}
        # Callables that descriptors in C gave -> the descriptor, the object, its class.
        self.bound: IdentityMap[tuple] = IdentityMap()

    def forget_globals(self, space: object) -> None:
        """Forgets what has been read in ``space``, which is about to be written."""
        self.global_values.pop(space, None)

    def clear(self) -> None:
        self.global_values.clear()
        self.owners.clear()
        self.types.clear()
        self.bound.clear()


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
