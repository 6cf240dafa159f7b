"""What a watched capture notes for reports beside its events: the time of each frame, and what each program costs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar, TypeVarTuple
from weakref import WeakKeyDictionary

from fineline.identity import IdentitySet
from fineline.report.clock import CallClock
from fineline.report.costs import BreakCost, BreakPlace, Cost, MetBreak
from fineline.report.programs import UNKNOWN, Measures
from fineline.report.tree import Node

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class GuardCosts(Protocol):
    """A guard program. ``costs`` returns the nanoseconds of each step, -1 after a failed one, and of a warm check, -1 if a step fails."""

    def costs(self, roots: tuple) -> tuple[Sequence[float], float]: ...


class Recording:
    """The notes on the captures of one watched callable."""

    def __init__(self) -> None:
        self.clock = CallClock()
        # The frames of the operators since the last program.
        self.operators: list[Node] = []
        # By the text of a program, for as long as a region has the program.
        self.measures: WeakKeyDictionary[object, Measures] = WeakKeyDictionary()
        self._keys = itertools.count()
        # When the making of the program under way began, and how long its graph has been compiled.
        self._began = self._backend = 0.0
        self._breaks: list[MetBreak] = []
        # By entry point: what its programs cost.
        self._programs: WeakKeyDictionary[object, list[Cost]] = WeakKeyDictionary()

    # -- graph breaks --------------------------------------------------------------------------------------------------
    def meet(self, place: BreakPlace) -> MetBreak:
        """Notes a graph break."""
        met = MetBreak(place)
        self._breaks.append(met)
        return met

    def programs_at(self, entry_point: object) -> list[Cost]:
        """Returns what the programs cost that start at an entry point: a list that grows with them."""
        return self._programs.setdefault(entry_point, [])

    def costs(self) -> list[BreakCost]:
        """Returns what the graph breaks have cost so far. A program to which several of them lead counts for the first one."""
        seen = IdentitySet()
        found = []
        for met in self._breaks:
            cost = Cost(1, seconds=met.seconds or 0.0, unmeasured=int(met.seconds is None))
            for programs in met.programs:
                cost = sum(programs if programs not in seen else (), cost)
                seen.add(programs)
            found.append(BreakCost(met.place, cost))
        return found

    # -- programs ------------------------------------------------------------------------------------------------------
    def forget_operators(self) -> None:
        """Forgets the operators since the last program, because no program contains them."""
        self.operators.clear()

    @contextmanager
    def making_program(self) -> Iterator[None]:
        """Makes the time in the block the program's own: no frame is charged with it."""
        self._began, self._backend = time.perf_counter(), 0.0
        with self.clock.running(_nobody):
            yield

    def timed(self, compile_graph: Callable[[*Ts], T]) -> Callable[[*Ts], T]:
        """Returns a function that compiles a graph and notes how long that takes."""

        def compiled(*args: *Ts) -> T:
            began = time.perf_counter()
            try:
                return compile_graph(*args)
            finally:
                self._backend += time.perf_counter() - began

        return compiled

    def note_program(self, text: object, guards: GuardCosts, roots: tuple, at: Sequence[int]) -> Measures:
        """Notes, and returns, what the program under way has cost: it contains the operators since the last one.

        ``roots``: the values that its guards begin with. ``at``: the positions of the guards among the steps.
        """
        writing = time.perf_counter() - self._began - self._backend
        key = f"{id(self):x}.{next(self._keys)}"
        for node in self.operators:
            if key not in node.programs[-1:]:
                node.programs.append(key)
        self.operators.clear()
        steps, check = guards.costs(roots)
        # With each guard, the reads since the guard before it.
        each = tuple([_seconds(steps[before + 1 : here + 1]) for before, here in zip((-1, *at), at, strict=False)])
        measures = self.measures[text] = Measures(key, self._backend, writing, each, _seconds((check,)))
        return measures


def _nobody() -> None:
    """Returns the node of time that belongs to no frame."""


def _seconds(costs: Sequence[float]) -> float:
    return UNKNOWN if min(costs) < 0 else sum(costs) * 1e-9
