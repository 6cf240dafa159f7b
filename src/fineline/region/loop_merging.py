"""Loops that contain graph breaks: whether an iteration runs the programs of an earlier one, and the numbers in which iterations differ."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from fineline.codegen.frame_state import FrameState, NumberPlaces
from fineline.codegen.loop_numbers import between
from fineline.region.entry_point import EntryPoint

# The newest iteration of a loop is compared with so many earlier ones; and so many in a row may differ from all of these.
COMPARED_ITERATIONS = 3
# So many iterations in a row of nested loops may differ from those before; then each has programs of its own.
DIFFERENT_ITERATIONS = 5
# The first iterations, as many as most loops over layers have, are captured one by one on the real values: their numbers are constants.
FEW_ITERATIONS = 4
# If the programs at a place in a loop come from at most so many calls, the iterations differ, and not the calls.
FEW_CALLS = 2


class LoopPoints(Protocol):
    """The entry points of a region, as loops need them."""

    @property
    def iterations(self) -> LoopIterations: ...
    def close_loop(self, own: EntryPoint, earlier: EntryPoint) -> None: ...


class Way(NamedTuple):
    """An entry point after a graph break, and the callable by which a program continues there."""

    entry_point: EntryPoint
    go_on: Callable[..., Any]

    def leads_back(self, live: tuple) -> bool:
        """Returns whether the programs of an earlier iteration of a loop run the rest, with these live values."""
        return type(self.go_on) is Loop and self.go_on.leads_back(live)


class Loop:
    """The way to a place that the call has passed before. Its first call decides whether it leads back to an earlier iteration."""

    def __init__(self, own: EntryPoint, earlier: Iterable[EntryPoint], points: LoopPoints) -> None:
        self._points = weakref.ref(points)
        self._own, self._entry_point = own.dispatcher, weakref.ref(own)
        self._earlier = [weakref.ref(entry_point) for entry_point in earlier]
        self._go_on: Callable[..., Any] | None = None

    def __call__(self, *live: Any) -> Any:
        return (self._go_on or self._decide(live))(*live)

    def leads_back(self, live: tuple) -> bool:
        return (self._go_on or self._decide(live)) is not self._own

    def _decide(self, live: tuple) -> Callable[..., Any]:
        onward, own, points = self._own, self._entry_point(), self._points()
        if self._go_on is not None or onward is None:
            # Another thread has just decided.
            return self._go_on or self
        found = next((entry_point for ref in self._earlier if (entry_point := ref()) is not None and entry_point.fits(live)), None)
        if own is None or own.segments or found is None:
            self._go_on = onward
            if own is not None and points is not None:
                points.iterations.another(own)
            return onward
        assert points is not None
        points.close_loop(own, found)
        points.iterations.again(found)
        self._go_on = back = Back(found)
        self._own = None
        return back


class Back:
    """The way back to an earlier iteration. Its reference is weak, because loops would be cycles; the region holds the entry point."""

    def __init__(self, entry_point: EntryPoint) -> None:
        self._entry_point = weakref.ref(entry_point)

    def __call__(self, *live: Any) -> Any:
        entry_point = self._entry_point()
        # If the region drops its programs, the call in progress still holds those with which it began, and those to which they lead.
        assert entry_point is not None
        return entry_point.dispatcher(*live)


class LoopIterations:
    """The live numbers in which iterations of loops differ, by the frames at each place in a loop; other numbers are constants."""

    def __init__(self) -> None:
        self.numbers: dict[Any, NumberPlaces] = {}
        # The places where each iteration has programs of its own, and by place how many iterations in a row were different.
        self._unrolled: set[Any] = set()
        self._others: Counter[Any] = Counter()

    def has_numbers(self, frame_state: FrameState) -> bool:
        """Returns whether numbers are known in which iterations at this place differ."""
        return bool(self.numbers.get(frame_state.chain))

    def are_unrolled(self, frame_state: FrameState) -> bool:
        """Returns whether each iteration has programs of its own."""
        return frame_state.chain in self._unrolled

    def learn(self, frame_state: FrameState, last: FrameState) -> bool:
        """Learns the numbers in which this iteration differs from the ``last`` one; returns whether there are new ones."""
        known = self.numbers.get(frame_state.chain, frozenset())
        found = between(frame_state, last)
        if found <= known:
            return False
        self.numbers[frame_state.chain] = known | found
        return True

    def another(self, entry_point: EntryPoint) -> None:
        """Counts an iteration that is unlike those before it."""
        frame_state = entry_point.frame_state
        if frame_state is None:
            return
        numbers, carried = frame_state.numbers.places, frame_state.values.carried
        if numbers or (carried and entry_point.passed[frame_state.stack] > FEW_ITERATIONS):
            self._others[frame_state.chain] += 1
            # Nested loops reach a place more than once in each iteration of the outer one.
            if self._others[frame_state.chain] >= (DIFFERENT_ITERATIONS if numbers and carried else COMPARED_ITERATIONS):
                self.unroll(entry_point)

    def again(self, entry_point: EntryPoint) -> None:
        """Notes an iteration that is like one before it."""
        if entry_point.frame_state is not None:
            self._others.pop(entry_point.frame_state.chain, None)

    def unroll(self, entry_point: EntryPoint) -> None:
        """Gives each iteration its own entry point from now on."""
        if entry_point.frame_state is not None:
            self._unrolled.add(entry_point.frame_state.chain)
            self.numbers.pop(entry_point.frame_state.chain, None)

    def forget(self) -> None:
        self.numbers.clear()
        self._unrolled.clear()
        self._others.clear()
