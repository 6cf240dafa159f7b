"""Lookups by identity in containers made here: which objects in one are the same must stay so, and each is told from the others once."""

from __future__ import annotations

import weakref
from collections.abc import Collection
from typing import Any

from fineline.capture.capture import is_value
from fineline.capture.watch import leaves, parts
from fineline.graph.recorder import NotForGraph
from fineline.guards.source import Source
from fineline.kinds import is_a


class Lookups:
    """One set: the objects that have been looked up in it, or seen there."""

    __slots__ = ("last", "refused", "size", "target", "told", "unknown")

    def __init__(self, target: set) -> None:
        # Its elements live no longer than without this.
        self.target = weakref.ref(target)
        # By register: the objects that are different ones, which ``guard`` says.
        self.told: dict[int, Source] = {}
        # As many elements have been seen; the one looked up since, in a tuple, may have been added.
        self.size = 0
        self.last: tuple = ()
        # Whether there are objects without a source, which may have got one since.
        self.unknown = False
        self.refused: str | None = None

    def follow(self, cap: Any) -> None:
        """Takes in what has been added to the set."""
        target: Any = self.target()
        size = len(target)
        # Each lookup comes through here, so that no more than the last one's element came or went.
        one = bool(self.last) and (size == self.size + 1 if self.last[0] in target else size == self.size - 1)
        if self.unknown or self.refused or not (size == self.size or one):
            self.unknown, self.refused = False, None
            for v in target:
                self._take(cap, v)
        elif size > self.size:
            self._take(cap, self.last[0])
        self.size, self.last = size, ()

    def _take(self, cap: Any, v: Any) -> None:
        if cap.lazy:
            cap.settle(v)
        try:
            cap.expand(v, True)
        except NotForGraph as e:
            self.refused = str(e)
        self.tell(cap, v)

    def tell(self, cap: Any, v: Any) -> None:
        """Notes that ``v``, and what it holds, are not the objects that were here before."""
        for part in (*parts(cap, v), *leaves(cap, (v,))):
            if is_value(part) or is_a(part, (tuple, frozenset)):
                continue
            src = cap.sources.get(id(part))
            if src is None:
                self.unknown = True
            else:
                self.told.setdefault(src.reg, src)

    def guard(self, cap: Any) -> None:
        """Guards, at the end of what is known of the set, that those objects are different ones."""
        _guard(cap, self.told.values())


def lookups(cap: Any, target: set) -> Lookups:
    """What is known of ``target``, whatever has been added to it."""
    found: Lookups | None = cap.lookups.get(id(target))
    if found is None or found.target() is not target:
        if found is not None:
            found.guard(cap)
        found = cap.lookups[id(target)] = Lookups(target)
    found.follow(cap)
    return found


def look_up(cap: Any, obj: Any, target: set) -> None:
    """``obj`` is looked up in a set made here, and maybe added to it."""
    found = lookups(cap, target)
    found.tell(cap, obj)
    if id(obj) in cap.sources or is_value(obj):
        found.last = (obj,)


def rewritten(cap: Any, target: Any) -> None:
    """``target`` is written to as a whole: as many elements may be others."""
    found: Lookups | None = cap.lookups.pop(id(target), None)
    if found is not None:
        found.guard(cap)


def look_up_key(cap: Any, obj: Any, among: Any) -> None:
    """Notes that ``obj`` is looked up in a dict made here, or in what becomes the keys of one."""
    # By id, which the capture keeps alive. A dict that has the address of an earlier one only adds to its objects.
    told = cap.keys.setdefault(id(among), {})
    new = {id(obj), *map(id, among)} - told.keys()
    if not new:
        return
    for k in (*among, obj):
        for part in parts(cap, k) if id(k) in new else ():
            src = cap.sources.get(id(part))
            if src is not None:
                told[id(part)] = src


def guard_lookups(cap: Any) -> None:
    """Guards what lookups in all containers that were made here rest on."""
    for found in cap.lookups.values():
        found.guard(cap)
    for told in cap.keys.values():
        _guard(cap, told.values())


def _guard(cap: Any, told: Collection[Source]) -> None:
    # Two objects that the program holds stay two.
    held = [src for src in told if src.op == "pin"]
    cap.guards.distinct([src for src in told if src.op != "pin"], held)
