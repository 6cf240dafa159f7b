"""Lookups by identity in sets that are made here: which objects in one are the same must stay so, and each is told from the others once."""

from __future__ import annotations

import weakref
from typing import Any

from fineline.capture.capture import is_value
from fineline.capture.watch import leaves, parts
from fineline.graph.recorder import NotForGraph
from fineline.kinds import is_a


class Lookups:
    """One set: the objects that have been looked up in it, or seen there."""

    __slots__ = ("last", "refused", "regs", "size", "target", "token", "unknown")

    def __init__(self, target: set) -> None:
        # Its elements live no longer than without this.
        self.target = weakref.ref(target)
        self.token = object()
        # Registers of the objects that have been told apart -> whether the program holds the object itself.
        self.regs: dict[int, bool] = {}
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
        """Guards that ``v``, and what it holds, are not the objects that were here before."""
        for part in (*parts(cap, v), *leaves(cap, (v,))):
            if is_value(part) or is_a(part, (tuple, frozenset)):
                continue
            src = cap.sources.get(id(part))
            if src is None:
                self.unknown = True
            elif src.reg not in self.regs:
                held = src.op == "pin"
                # Two objects that the program holds stay two.
                others = [reg for reg, pinned in self.regs.items() if not pinned] if held else self.regs
                if others:
                    cap.guards.check(src, "distinct", tuple(others), ("apart", self.token))
                self.regs[src.reg] = held


def lookups(cap: Any, target: set) -> Lookups:
    """What is known of ``target``, whatever has been added to it."""
    found: Lookups | None = cap.lookups.get(id(target))
    if found is None or found.target() is not target:
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
    cap.lookups.pop(id(target), None)
