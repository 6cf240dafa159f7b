"""Lookups by identity in containers made here: which objects in one are the same must stay so, and each is told from the others once."""

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

# Stands for an object that the captured code has made, which must not live longer because of a lookup. It differs from all others.
NEW = object()


class Lookups:
    """One set: the objects that have been looked up in it, or seen there."""

    __slots__ = ("last", "made", "refused", "size", "target", "told", "unknown")

    def __init__(self, target: set) -> None:
        # Its elements live no longer than without this.
        self.target = weakref.ref(target)
        # By register: the objects that are different ones, which ``guard`` says.
        self.told: dict[int, Source] = {}
        # Objects that the captured code has made. What lies there later may have a source.
        self.made = AddressSet()
        # As many elements have been seen; the one looked up since, in a tuple, may have been added. NEW stands for an object made here.
        self.size = 0
        self.last: tuple = ()
        # Whether there are objects without a source, which may have got one since.
        self.unknown = False
        self.refused: str | None = None

    def follow(self, trace: SegmentTrace) -> None:
        """Takes in what has been added to the set."""
        target: Any = self.target()
        size = len(target)
        # Each lookup comes through here, so that no more than the last one's element came or went.
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
        """Notes that ``v``, and what it holds, are not the objects that were here before."""
        for part in (*parts(trace, v), *leaves(trace, (v,))):
            if is_value(part) or is_a(part, (tuple, frozenset)):
                continue
            src = trace.sources.get(part)
            if src is not None:
                self.told.setdefault(src.reg, src)
            elif part in trace.made:
                self.made.add(part)
            else:
                self.unknown = True

    def guard(self, trace: SegmentTrace) -> None:
        """Guards that the objects that were looked up are different ones."""
        for src in trace.sources.at(self.made):
            self.told.setdefault(src.reg, src)
        _guard(trace, self.told.values())


def lookups(trace: SegmentTrace, target: set) -> Lookups:
    """Returns what is known of ``target``, whatever has been added to it."""
    found: Lookups | None = trace.containers.lookups.get(target)
    if found is None or found.target() is not target:
        if found is not None:
            found.guard(trace)
        found = trace.containers.lookups[target] = Lookups(target)
    found.follow(trace)
    return found


def look_up(trace: SegmentTrace, obj: Any, target: set) -> None:
    """Notes that ``obj`` is looked up in a set made here, and maybe added to it."""
    found = lookups(trace, target)
    found.tell(trace, obj)
    if obj in trace.sources or is_value(obj):
        found.last = (obj,)
    elif obj in trace.made:
        found.last = (NEW,)


def rewritten(trace: SegmentTrace, target: Any) -> None:
    """Guards what is known of ``target``, which is about to be written as a whole, and forgets it."""
    found: Lookups | None = trace.containers.lookups.pop(target, None)
    if found is not None:
        found.guard(trace)


class Keys:
    """A dict made here, or others at its address before it: the objects that have been looked up in it."""

    __slots__ = ("made", "told")

    def __init__(self) -> None:
        # They have sources, which keep them. A later dict at the same address only adds to them.
        self.told: AddressMap[Source] = AddressMap()
        # Those that had no source, as the captured code has made them.
        self.made = AddressSet()

    def unseen(self, trace: SegmentTrace, keys: Iterable[Any]) -> list[Any]:
        """Returns those of the ``keys`` that no lookup has met."""
        # In C: it looks at all keys each time.
        untold = list(filterfalse(self.told.__contains__, keys))
        # What lies where an object made here has been may have a source.
        made = filter(self.made.__contains__, untold)
        return [*filterfalse(self.made.__contains__, untold), *filter(trace.sources.__contains__, made)]

    def tell(self, trace: SegmentTrace, key: Any) -> None:
        """Notes that ``key``, and what it binds, are not the objects that were here before."""
        for part in parts(trace, key):
            src = trace.sources.get(part)
            if src is not None:
                self.told[part] = src
            elif part is key and key in trace.made:
                self.made.add(key)


def look_up_key(trace: SegmentTrace, obj: Any, among: Any) -> None:
    """Notes that ``obj`` is looked up in a dict made here, or in what becomes the keys of one."""
    found = trace.containers.keys.setdefault(among, Keys())
    # Most dicts are filled key by key.
    for key in found.unseen(trace, (*among, obj)):
        found.tell(trace, key)


def guard_lookups(trace: SegmentTrace) -> None:
    """Guards what lookups in all containers that were made here rest on."""
    for found in trace.containers.lookups.values():
        found.guard(trace)
    for found in trace.containers.keys.values():
        _guard(trace, found.told.values())


def _guard(trace: SegmentTrace, told: Collection[Source]) -> None:
    # Two objects that the program holds stay two.
    held = [src for src in told if src.op == "pin"]
    trace.guards.distinct([src for src in told if src.op != "pin"], held)
