"""Where a program goes on after a graph break: at a continuation of its own, where another way through the code meets it, or back in a loop."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, NamedTuple

from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.codegen.frame_state import FrameState, Turned
from fineline.codegen.loop_numbers import between
from fineline.frames.graph_breaks import GraphBreak
from fineline.region.entry_point import EntryPoint

# So many iterations of a loop are looked at for one that is like the newest; and so many may differ from all that are looked at.
TURNS = 3
# So many in a row of two loops in one another may differ from those before; then each has programs of its own.
DIFFERENT_TURNS = 5
# As many turns as most loops over layers have are captured as they come, on the real values: what is constant in the code stays so.
FEW_TURNS = 4
# If the programs at a place in a loop come from no more calls than these, it is the turns that differ.
FEW_CALLS = 2


class Way(NamedTuple):
    """A continuation, and what the program that leads there calls."""

    entry_point: EntryPoint
    go_on: Callable[..., Any]

    def leads_back(self, live: tuple) -> bool:
        """Returns whether the programs of an earlier iteration of a loop do the rest, with so much alive."""
        return type(self.go_on) is Loop and self.go_on.leads_back(live)


class Loop:
    """The way to a place that the call has passed before: whether it leads on, or back to an earlier iteration that fits, the first call decides."""

    def __init__(self, own: EntryPoint, earlier: Iterable[EntryPoint]) -> None:
        self._own, self._entry_point = own.dispatcher, weakref.ref(own)
        self._earlier = [weakref.ref(entry_point) for entry_point in earlier]
        self._go_on: Callable[..., Any] | None = None

    def __call__(self, *live: Any) -> Any:
        return (self._go_on or self._decide(live))(*live)

    def leads_back(self, live: tuple) -> bool:
        return (self._go_on or self._decide(live)) is not self._own

    def _decide(self, live: tuple) -> Callable[..., Any]:
        onward, own = self._own, self._entry_point()
        if self._go_on is not None or onward is None:
            # Another thread has just decided.
            return self._go_on or self
        found = next((entry_point for ref in self._earlier if (entry_point := ref()) is not None and entry_point.fits(live)), None)
        if own is None or own.segments or found is None:
            self._go_on = onward
            if own is not None:
                own.region.turns.another(own)
            return onward
        own.region.close_loop(own, found)
        own.region.turns.again(found)
        self._go_on = back = Back(found)
        self._own = None
        return back


class Back:
    """Weakly, as loops would be cycles: the region holds what they go back to."""

    def __init__(self, entry_point: EntryPoint) -> None:
        self._entry_point = weakref.ref(entry_point)

    def __call__(self, *live: Any) -> Any:
        entry_point = self._entry_point()
        # If the region drops its programs, the call under way still holds those that it began with, and what they lead to.
        assert entry_point is not None
        return entry_point.dispatcher(*live)


def snapshot_at(run: Any, graph_break: GraphBreak, place: tuple[str, int], held: Set[int] = frozenset()) -> Snapshot:
    """Returns the state of the frames at a graph break, in a form that iterations of a loop share as far as possible."""
    turns = run.region.turns
    snapshot = take_snapshot(run.interp, graph_break, place, True, held, turns.numbers)
    return snapshot_at(run, graph_break, place, held) if turns.learn(run, snapshot.state) else snapshot


def way_behind(run: Any, frame_state: FrameState, raised: bool, declared: bool, passed: Mapping, alone: bool) -> Way:
    """Returns the continuation after a graph break; it shares an existing entry point unless it is to be ``alone``."""
    region = run.region
    if alone:
        own = EntryPoint(region, frame_state, raised, declared, passed)
        return Way(own, own.dispatcher)
    # Behind as many graph breaks there is another way through the code, behind fewer an earlier iteration.
    for entry_point in region.entry_points:
        if entry_point.passed == passed and entry_point.stands_for(frame_state, raised, declared):
            entry_point.met = True
            return Way(entry_point, entry_point.dispatcher)
    earlier = [entry_point for entry_point in turns_before(run, frame_state) if entry_point.stands_for(frame_state, raised, declared)]
    # What the items of a list are is constant in the first turns, as numbers are.
    shared = earlier and not (frame_state.values.carried and run.passed.get(frame_state.stack, 0) < FEW_TURNS)
    own = EntryPoint(region, frame_state, raised, declared, passed, earlier[0].varying if shared else None)
    own.varying.differ(frame_state.numbers.names)
    return Way(own, Loop(own, earlier) if earlier else own.dispatcher)


def turns_before(run: Any, frame_state: FrameState) -> Iterator[EntryPoint]:
    """Returns the entry points at the same place that were made last, the newest first."""
    # Turns without an operator are no work for programs: in the end the function is left to run eagerly.
    if frame_state.chain in run.region.turns.unrolled or not run.interp.trace.recorder.calls:
        return iter(())
    stack = frame_state.stack
    newest_first = reversed(run.region.entry_points)
    return islice((point for point in newest_first if point.frame_state is not None and point.frame_state.stack == stack), TURNS)


class Turns:
    """The live numbers in which iterations of loops differ, by the frames at each place in a loop; other numbers are constants."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Turned] = {}
        # Where each turn needs programs of its own in any case, and how many in a row did.
        self.unrolled: set[Any] = set()
        self._others: Counter[Any] = Counter()

    def learn(self, run: Any, frame_state: FrameState) -> bool:
        """Learns the numbers in which this iteration differs from the one before it; returns whether there are new ones."""
        known = self.numbers.get(frame_state.chain, frozenset())
        if run.region.options.dynamic is False or (not known and run.passed.get(frame_state.stack, 0) < FEW_TURNS):
            return False
        last = next(turns_before(run, frame_state), None)
        if last is None or last.frame_state is None:
            return False
        found = between(frame_state, last.frame_state)
        if found <= known:
            return False
        self.numbers[frame_state.chain] = known | found
        return True

    def another(self, entry_point: EntryPoint) -> None:
        """Counts an iteration that is not like one before it."""
        frame_state = entry_point.frame_state
        if frame_state is None:
            return
        turned, carried = frame_state.numbers.turned, frame_state.values.carried
        if turned or (carried and entry_point.passed[frame_state.stack] > FEW_TURNS):
            self._others[frame_state.chain] += 1
            # Two loops in one another come to a place more than once a turn of the outer one.
            if self._others[frame_state.chain] >= (DIFFERENT_TURNS if turned and carried else TURNS):
                self.unroll(entry_point)

    def again(self, entry_point: EntryPoint) -> None:
        """Notes an iteration that is like one before it."""
        if entry_point.frame_state is not None:
            self._others.pop(entry_point.frame_state.chain, None)

    def unroll(self, entry_point: EntryPoint) -> None:
        """Gives each iteration its own entry point from now on."""
        if entry_point.frame_state is not None:
            self.unrolled.add(entry_point.frame_state.chain)
            self.numbers.pop(entry_point.frame_state.chain, None)

    def forget(self) -> None:
        self.numbers.clear()
        self.unrolled.clear()
        self._others.clear()
