"""The numbers in which the iterations of a loop differ, at a place that each iteration reaches."""

from __future__ import annotations

from fineline.codegen.frame_snapshot import COUNTERS
from fineline.codegen.frame_state import Const, FrameState, IteratorShape, Number, NumberPlaces, alike
from fineline.cpython.polyfill_iterators import RangeIterator


def between(one: FrameState, other: FrameState) -> NumberPlaces:
    """Returns the places of numbers that differ, if the two states differ in nothing else."""
    shapes, others = one.shapes, other.shapes
    if not (alike(one.values, other.values) and alike(one.resumption, other.resumption)):
        return frozenset()
    if not alike(shapes.generators, others.generators) or list(map(len, shapes)) != list(map(len, others)):
        return frozenset()
    found: set[Number] = set()
    for f, (mine, theirs) in enumerate(zip(shapes.frames, others.frames, strict=True)):
        if not alike(tuple(mine._replace(local=(), stack=())), tuple(theirs._replace(local=(), stack=()))):
            return frozenset()
        for where in ("local", "stack"):
            if not _differ(where, f, dict(enumerate(getattr(mine, where))), dict(enumerate(getattr(theirs, where))), found):
                return frozenset()
    for i, (made, earlier) in enumerate(zip(shapes.objects, others.objects, strict=True)):
        if alike(made, earlier):
            continue
        if made[:2] != earlier[:2] or type(made.parts) is not dict or not _differ("object", i, made.parts, earlier.parts, found):
            return frozenset()
    for i, (it, before) in enumerate(zip(shapes.iterators, others.iterators, strict=True)):
        if alike(it, before):
            continue
        *numbers, step = _rest(it, i in one.numbers.lone)
        *earlier_numbers, same = _rest(before, i in other.numbers.lone)
        if step is None or not alike(step, same):
            return frozenset()
        pairs = zip(("at", "stop"), numbers, earlier_numbers, strict=True)
        found |= {Number(where, 0, i) for where, a, b in pairs if not alike(a, b)}
    return frozenset(found)


def _differ(where: str, holder: int, mine: dict, theirs: dict, found: set[Number]) -> bool:
    """Adds the places of numbers that differ to ``found``; returns whether nothing else differs."""
    if not alike(tuple(mine), tuple(theirs)):
        return False
    for slot, a in mine.items():
        b = theirs[slot]
        if alike(a, b):
            continue
        if not (type(a) is type(b) is Const and type(a.value) is type(b.value) and type(a.value) in COUNTERS):
            return False
        found.add(Number(where, holder, slot))
    return True


def _rest(shape: IteratorShape, lone: bool) -> tuple:
    """Returns, for an iterator over a range, the next number, the stop and the step; three times None for another iterator."""
    make, args, state = shape
    if make is RangeIterator:
        return tuple(args)
    if not lone or type(state) is not Const:
        return None, None, None
    whole = args[0].value
    # From Python 3.12 on, the range is what is left, and there is no state.
    return Const(whole.start + (state.value or 0) * whole.step), Const(whole.stop), Const(whole.step)
