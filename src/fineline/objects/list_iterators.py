"""Iterators created in a segment over existing lists: each item is read with its own guard, and the length is guarded at the list's end.

A list that C reads as a whole is guarded as a whole. `iter`, `enumerate` and `zip`, and the code that uses them, read item by item.
Two calls whose lists differ only after the last item that was read, for example before a graph break, share one program.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, NamedTuple

from fineline.cpython.iterator_states import iterator_state
from fineline.guards.source import Source
from fineline.identity import IdentityMap
from fineline.objects.iterator_stand_ins import Recipe
from fineline.tracing.identity_guards import LIST_ITERATOR, LIST_READERS, OVER_LISTS, REVERSED_ITERATOR, ItemFromEnd, list_iterators
from fineline.tracing.segment_trace import SegmentTrace


class Unread(NamedTuple):
    """An iterator over a list that the segment has neither read as a whole nor written to."""

    iterator: Any
    held: list
    source: Source
    # The index of the next item.
    at: int


def unread_lists(trace: SegmentTrace, it: Any) -> list[Unread]:
    """Returns the iterators over unread lists among ``it`` and the iterators that it reads."""
    found = []
    for each in list_iterators(it):
        _, (held,), *state = iterator_state(each)
        src = trace.sources.get(held) if state else None
        if src is not None and held not in trace.containers.expanded:
            found.append(Unread(each, held, src, state[0]))
    return found


def reversed_recipe(trace: SegmentTrace, it: Any) -> Recipe | None:
    """Returns the recipe for a reversed iterator over an unread list, independent of the list's length; None for others."""
    if type(it) is not REVERSED_ITERATOR or not (found := unread_lists(trace, it)):
        return None
    (unread,) = found
    if trace.mutations.wrote(unread.held):
        trace.expand(it)
        return None
    return Recipe(reversed_rest, (unread.held, len(unread.held) - 1 - unread.at))


def reversed_rest(held: list, taken: int) -> Iterator[Any]:
    """Returns a reversed iterator over a list from which ``taken`` items have been taken."""
    it = reversed(held)
    it.__setstate__(len(held) - 1 - taken)
    return it


def next_item(trace: SegmentTrace, it: Any) -> Any:
    """Returns the next item of a C iterator; guards the items read from unread lists, and the length of a list that ends."""
    t = type(it)
    if t is LIST_ITERATOR and trace.active:
        return _next_of_one(trace, it, it)
    if t not in LIST_READERS or not trace.active:
        return next(it)
    if t is enumerate and type(inner := it.__reduce__()[1][0]) is LIST_ITERATOR:
        return _next_of_one(trace, it, inner)
    # Two parts that read one iterator share its items.
    found = IdentityMap([(unread.iterator, unread) for unread in unread_lists(trace, it)]).values()
    if found and any([trace.mutations.wrote(unread.held) for unread in found]):
        trace.expand(it)
        found = []
    if not found:
        return next(it)
    try:
        value = next(it)
    finally:
        items = IdentityMap([(unread.iterator, iter(_taken(trace, unread))) for unread in found])
    return _with_read(it, value, items)


def _next_of_one(trace: SegmentTrace, it: Any, inner: Any) -> Any:
    """Returns the next item of the list iterator ``inner``, or of `enumerate` over it: a fast path for most loops."""
    # Without ``__reduce__``, which takes as long as the rest: most lists are created in the segment. An ended iterator has no list.
    lists = gc.get_referents(inner)
    src = trace.sources.get(lists[0]) if lists else None
    if src is None or lists[0] in trace.containers.expanded:
        return next(it)
    held, at = lists[0], inner.__reduce__()[2]
    if trace.mutations.wrote(held):
        trace.expand(held)
        return next(it)
    try:
        value = next(it)
    except StopIteration:
        trace.guards.check(src, "len", list.__len__(held))
        raise
    found = value if it is inner else value[1]
    item = trace.read(found, trace.guards.access(src, "index", at, found))
    if it is inner:
        return item
    return value if item is found else (value[0], item)


def _taken(trace: SegmentTrace, unread: Unread) -> list[Any]:
    """Guards the items taken from a list since ``unread`` was noted, and its length if it has ended; returns the items."""
    held, src = unread.held, unread.source
    state = iterator_state(unread.iterator)[2:]
    if type(unread.iterator) is REVERSED_ITERATOR:
        # Guards each item by its distance from the end, so that the length may vary.
        places = range(unread.at, state[0] if state else -1, -1)
        items = [trace.read(held[i], trace.guards.access(src, "member", ItemFromEnd(i - len(held)), held[i])) for i in places]
    else:
        items = [trace.read(v, trace.guards.access(src, "index", unread.at + n, v)) for n, v in enumerate(held[unread.at : state[0] if state else None])]
    # A reversed iterator without items left ends at its next step; Python 3.13 does not tell whether it has made that.
    if not state or unread.at < 0:
        trace.guards.check(src, "len", list.__len__(held))
    return items


def _with_read(it: Any, value: Any, items: IdentityMap[Iterator[Any]]) -> Any:
    """Returns ``value``, the result of ``it``, with each item in it replaced by its registered form: a symbol for a varying number."""
    t = type(it)
    if t in OVER_LISTS:
        return next(items[it]) if it in items else value
    if t not in LIST_READERS:
        return value
    parts = it.__reduce__()[1]
    new = (value[0], _with_read(parts[0], value[1], items)) if t is enumerate else tuple(map(lambda part, v: _with_read(part, v, items), parts, value))
    return value if all([a is b for a, b in zip(new, value, strict=True)]) else new
