"""Calls of cached functions with varying numbers: the wrapped function is captured, because the cache has one entry per number.

The result is new at each call and not the object in the cache, so it must be neither changed nor kept. If it is, or if the function cannot
be captured, the numbers are specialized from then on, and the call is a cache hit like any other.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

from fineline.frames.frame import Frame, stack
from fineline.frames.graph_breaks import Delivery, Restart
from fineline.identity import IdentityMap
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES


class Inlined:
    """The results of inlined calls of cached functions in one segment. ``settled``: the functions whose calls must not be inlined."""

    def __init__(self, settled: set[CodeType]) -> None:
        self._settled = settled
        # Containers in results: the ids of the items of each, and the code of the function.
        self._given: IdentityMap[tuple[list[int], CodeType]] = IdentityMap()

    def call(self, interp: Interp, f: Frame, inner: Any, args: list, kwargs: dict, hit: Any, then: Delivery | None) -> Frame | None:
        mutations = interp.trace.mutations
        before = len(mutations.calls), mutations.effects()
        return interp.call(f, inner, list(args), dict(kwargs), Delivery(_done, then, inner.__code__, hit, before))

    def note(self, value: Any, code: CodeType) -> None:
        t = type(value)
        if value in self._given:
            return
        if t in (list, dict, set):
            self._given[value] = _items(value), code
        if t in (tuple, list, set, dict):
            for item in (*value.keys(), *value.values()) if t is dict else value:
                self.note(item, code)
        elif t not in SINGLETONS and t not in VALUES and t not in SYMBOLIC:
            self.settle(code)

    def settle(self, code: CodeType) -> None:
        self._settled.add(code)
        raise Restart("FL418", "what a cached function gave for a number that varies is not only read", again=True)

    def keep(self, value: Any) -> None:
        """Stops inlining the function whose result ``value`` outlives the segment."""
        if value in self._given:
            self.settle(self._given[value][1])

    def check(self, interp: Interp) -> None:
        """Checks at the end of the segment that no inlined call is running, and that their results are unchanged; otherwise stops inlining."""
        for f in stack(interp.frame):
            if f.then is not None and f.then.function is _done:
                self.settle(f.then.data[0])
        for value, (items, code) in self._given.items():
            if _items(value) != items:
                self.settle(code)

    def close(self) -> None:
        self._given.clear()


def _items(value: Any) -> list[int]:
    return list(map(id, (*value.keys(), *value.values()) if type(value) is dict else value))


def _done(interp: Interp, f: Frame, value: Any, then: Delivery | None, code: CodeType, hit: tuple, before: tuple[int, int]) -> Frame | None:
    hits, effects = before
    mutations, inlined = interp.trace.mutations, interp.trace.symbols.inlined
    if mutations.effects() > effects:
        inlined.settle(code)
    inlined.note(value, code)
    # A hit in the outer cache looks up no inner caches.
    del mutations.calls[hits:]
    if interp.nested.opaque is None:
        mutations.note_call(*hit)
    return interp.finish(f, value, then)
