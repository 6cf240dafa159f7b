"""The namespaces that a segment's code has read names in: globals, the dicts of instances, classes."""

from __future__ import annotations

from typing import Any

from fineline.identity import AddressMap, IdentityMap


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
