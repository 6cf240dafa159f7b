"""Tables of one segment that make sure each name, function and whole container is checked and guarded once."""

from __future__ import annotations

from types import CodeType, FunctionType
from typing import Any, Protocol

from fineline.identity import AddressMap, AddressSet, IdentityMap, IdentitySet
from fineline.torch_facts.wrapper_subclasses import KnownParts


class Namespaces:
    """The results of name lookups in one segment, so that each name is guarded once."""

    __slots__ = ("bound", "global_values", "owners", "shadows", "types")

    def __init__(self) -> None:
        # Namespaces: the globals that have been read in each. Running code keeps its namespace alive, and one other has a source.
        self.global_values: AddressMap[dict[str, Any]] = AddressMap()
        # Instance dicts of objects created in the segment: the owner of each, which this table keeps alive with its dict.
        self.owners: AddressMap[Any] = AddressMap()
        # In a capture beside the user's code: what stands for the dicts of instances that it has written to. The sources keep these alive.
        self.shadows: AddressMap[dict] | None = None
        # Classes: the names that have been looked up on each.
        self.types: dict[type, Any] = {}
        # Callables that C descriptors returned: the descriptor, the object, its class.
        self.bound: IdentityMap[tuple] = IdentityMap()

    def forget_globals(self, space: object) -> None:
        """Forgets the names that were read in ``space``, because it is about to be written."""
        self.global_values.pop(space, None)

    def clear(self) -> None:
        self.global_values.clear()
        self.owners.clear()
        self.types.clear()
        self.bound.clear()


class SegmentFunctions:
    """Facts about the functions that one segment has called, so that each is checked once."""

    __slots__ = ("frames", "guarded", "hooks_seen", "pure", "run_through")

    def __init__(self) -> None:
        # Functions whose parts are guarded. Those from before the segment have sources; for those created in it nothing is guarded.
        self.guarded = AddressSet()
        # Python functions that capture runs through unless they get attributes: the code of each, which detects another function at its address.
        # Their objects are not kept alive: the contents of closures must die when they die in eager code.
        self.run_through: AddressMap[CodeType] = AddressMap()
        # Functions that CPython may run: the assumptions of each, which keep it alive; code that it must not run: None.
        self.pure: AddressMap[Any] = AddressMap()
        # Frames of running functions that the code has asked for: the instruction that did. They die when they would in eager code,
        # because a frame keeps its callers alive. A program has no such frame.
        self.frames: AddressMap[tuple[CodeType, int]] = AddressMap()
        # Whether the absence of global module hooks is guarded.
        self.hooks_seen = False

    def look_into(self, fn: FunctionType) -> None:
        """Notes that capture runs through ``fn``, as long as it has this code."""
        self.run_through[fn] = fn.__code__

    def clear(self) -> None:
        self.guarded.clear()
        self.run_through.clear()
        self.pure.clear()
        self.frames.clear()


class Guarded(Protocol):
    """A set of containers whose whole contents are guarded."""

    def __contains__(self, container: object, /) -> bool: ...
    def add(self, container: object, /) -> None: ...
    def update(self, containers: Any, /) -> None: ...
    def clear(self) -> None: ...


class GuardedContainers:
    """The guards of one segment on containers as wholes, in addition to those on the items that the code has read."""

    __slots__ = ("expanded", "keys", "lookups", "ordered", "wrappers")

    def __init__(self) -> None:
        # Containers whose whole contents are guarded; their sources keep them alive.
        self.expanded: Guarded = AddressSet()
        # Dicts of hooks on modules in which the order of the numbers is guarded. Code that sees the numbers guards them.
        self.ordered = IdentitySet()
        # Sets in which objects are looked up by identity. Each `Lookups` checks that it belongs to the set now at its address.
        self.lookups: AddressMap[Any] = AddressMap()
        # Dicts in which objects are looked up by identity; one `Keys` may serve several dicts.
        self.keys: AddressMap[Any] = AddressMap()
        # Tensors that consist of other tensors.
        self.wrappers = KnownParts()

    def guard_again(self) -> Guarded:
        """Makes the code that runs next guard all containers that it reads, even those guarded before; returns the guarded containers."""
        before, self.expanded = self.expanded, type(self.expanded)()
        return before

    def clear(self) -> None:
        self.expanded.clear()
        self.ordered.clear()
        self.lookups.clear()
        self.keys.clear()
        self.wrappers.clear()
