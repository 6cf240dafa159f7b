"""Lookups by identity in containers created here: guards that the objects in them stay distinct, each added once."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from itertools import filterfalse
from typing import Any

from fineline.fx.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.identity import AddressMap, AddressSet
from fineline.kinds import is_a
from fineline.tracing.identity_guards import leaves, parts
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace

# Stands for an object created here, which a lookup must not keep alive. It differs from all objects with a source.
NEW = object()


class Lookups:
    """The objects that have been looked up in one set, or found in it."""

    __slots__ = ("last", "made", "refused", "size", "target", "guarded", "unknown")

    def __init__(self, target: set) -> None:
        # A weak reference, because the elements must not live longer.
        self.target = weakref.ref(target)
        # The objects that ``guard`` keeps distinct, by register of their source.
        self.guarded: dict[int, Source] = {}
        # Objects created here. A later object at the same address may have a source.
        self.made = AddressSet()
        # The size of the set at the last look, and the object looked up since, in a tuple: it may have been added. NEW: an object created here.
        self.size = 0
        self.last: tuple = ()
        # Whether the set holds objects that had no source; they may have one by now.
        self.unknown = False
        self.refused: str | None = None

    def follow(self, trace: SegmentTrace) -> None:
        """Notes the elements that were added to the set since the last look."""
        target: Any = self.target()
        size = len(target)
        # Each lookup calls this method, so at most one element, the last one looked up, was added or removed.
        new = bool(self.last) and self.last[0] is NEW
        one = bool(self.last) and size - self.size in ((1, -1) if new else (1,) if self.last[0] in target else (-1,))
        if self.unknown or self.refused or not (size == self.size or one):
            self.unknown, self.refused = False, None
            for v in target:
                self._take(trace, v)
        elif size > self.size and not new:
            self._take(trace, self.last[0])
        self.size, self.last = size, ()

    def _take(self, trace: SegmentTrace, v: Any) -> None:
        if trace.deferred.numbers:
            trace.deferred.settle(v)
        try:
            trace.expand(v, True)
        except NotForGraph as e:
            self.refused = str(e)
        self.tell(trace, v)

    def tell(self, trace: SegmentTrace, v: Any) -> None:
        """Notes that ``v``, and the objects it contains, are distinct from the objects noted before."""
        for part in (*parts(trace, v), *leaves(trace, (v,))):
            if is_value(part) or is_a(part, (tuple, frozenset)):
                continue
            src = trace.sources.get(part)
            if src is not None:
                self.guarded.setdefault(src.reg, src)
            elif part in trace.made:
                self.made.add(part)
            else:
                self.unknown = True

    def guard(self, trace: SegmentTrace) -> None:
        """Guards that the objects that were looked up are distinct."""
        for src in trace.sources.at(self.made):
            self.guarded.setdefault(src.reg, src)
        _guard(trace, self.guarded.values())


def lookups(trace: SegmentTrace, target: set) -> Lookups:
    """Returns the lookups of ``target``, updated with the elements added since the last one."""
    found: Lookups | None = trace.containers.lookups.get(target)
    if found is None or found.target() is not target:
        if found is not None:
            found.guard(trace)
        found = trace.containers.lookups[target] = Lookups(target)
    found.follow(trace)
    return found


def look_up(trace: SegmentTrace, obj: Any, target: set) -> None:
    """Notes that ``obj`` is looked up in a set created here, and possibly added to it."""
    found = lookups(trace, target)
    found.tell(trace, obj)
    if obj in trace.sources or is_value(obj):
        found.last = (obj,)
    elif obj in trace.made:
        found.last = (NEW,)


def rewritten(trace: SegmentTrace, target: Any) -> None:
    """Guards and then forgets the lookups of ``target``, because it is about to be overwritten as a whole."""
    found: Lookups | None = trace.containers.lookups.pop(target, None)
    if found is not None:
        found.guard(trace)


class Keys:
    """The objects looked up in a dict created here, or in earlier dicts at its address."""

    __slots__ = ("made", "guarded")

    def __init__(self) -> None:
        # The sources keep these objects alive. A later dict at the same address only adds to them.
        self.guarded: AddressMap[Source] = AddressMap()
        # Objects without a source, because the captured code created them.
        self.made = AddressSet()

    def unseen(self, trace: SegmentTrace, keys: Iterable[Any]) -> list[Any]:
        """Returns the ``keys`` that no lookup has noted yet."""
        # In C, because each lookup goes through all keys.
        unguarded = list(filterfalse(self.guarded.__contains__, keys))
        # An object at the address of one created here may have a source.
        made = filter(self.made.__contains__, unguarded)
        return [*filterfalse(self.made.__contains__, unguarded), *filter(trace.sources.__contains__, made)]

    def tell(self, trace: SegmentTrace, key: Any) -> None:
        """Notes that ``key``, and the objects it binds, are distinct from the objects noted before."""
        for part in parts(trace, key):
            src = trace.sources.get(part)
            if src is not None:
                self.guarded[part] = src
            elif part is key and key in trace.made:
                self.made.add(key)


def look_up_key(trace: SegmentTrace, obj: Any, among: Any) -> None:
    """Notes that ``obj`` is looked up in a dict created here, or in the future keys of one."""
    found = trace.containers.keys.setdefault(among, Keys())
    # Most dicts are filled key by key.
    for key in found.unseen(trace, (*among, obj)):
        found.tell(trace, key)


def guard_lookups(trace: SegmentTrace) -> None:
    """Guards that the objects looked up in all containers created here stay distinct."""
    for found in trace.containers.lookups.values():
        found.guard(trace)
    for found in trace.containers.keys.values():
        _guard(trace, found.guarded.values())


def _guard(trace: SegmentTrace, guarded: Collection[Source]) -> None:
    # The program keeps constants alive: two of them stay distinct without a guard.
    held = [src for src in guarded if src.op == "pin"]
    trace.guards.distinct([src for src in guarded if src.op != "pin"], held)
