"""What graph breaks and rules cost, measured while a call is explained: graphs, guards, and the time of the eager calls."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self, TypedDict, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Shorter times are not shown: they are those of any call.
SHORTEST = 1e-6


class BreakPlace(NamedTuple):
    """A graph break, as its event names it."""

    id: str
    reason: str
    file: str
    line: int
    rule: str


class ProgramWeight(NamedTuple):
    """A program: a number that tells it from others, the number of its graphs, and that of its guards."""

    key: int
    graphs: int
    guards: int


class CostFacts(TypedDict):
    """A cost, for JSON."""

    breaks: int
    graphs: int
    guards: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    """What graph breaks cost: the graphs and guards of the programs that start after them, and the time of the eager calls at them.

    A difference of two costs may be negative: a saving.
    """

    breaks: int = 0
    graphs: int = 0
    guards: int = 0
    seconds: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.breaks + other.breaks, self.graphs + other.graphs, self.guards + other.guards, self.seconds + other.seconds)

    def __sub__(self, other: Cost) -> Cost:
        return Cost(self.breaks - other.breaks, self.graphs - other.graphs, self.guards - other.guards, self.seconds - other.seconds)

    def __str__(self) -> str:
        """Returns "costs …" and "saves …", or "costs nothing"."""
        return ", ".join([f"{word} {', '.join(parts)}" for word, parts in (("costs", self._parts(1)), ("saves", self._parts(-1))) if parts]) or "costs nothing"

    def _parts(self, sign: int) -> list[str]:
        counted = [(self.breaks * sign, "graph break"), (self.graphs * sign, "graph"), (self.guards * sign, "guard")]
        parts = [f"{n} {noun}{'' if n == 1 else 's'}" for n, noun in counted if n > 0]
        seconds = self.seconds * sign
        return [*parts, f"{seconds_text(seconds)} of eager calls"] if seconds >= SHORTEST else parts

    def as_dict(self) -> CostFacts:
        return CostFacts(breaks=self.breaks, graphs=self.graphs, guards=self.guards, seconds=self.seconds)


NO_COST = Cost()


@dataclass(frozen=True)
class BreakCost:
    """A graph break, and what it costs."""

    place: BreakPlace
    cost: Cost

    def as_dict(self) -> dict[str, object]:
        return {**self.place._asdict(), **asdict(self.cost)}

    @classmethod
    def from_dict(cls, facts: dict[str, object]) -> Self:
        known = dict(facts)
        place = BreakPlace(**{name: known.pop(name) for name in BreakPlace._fields})  # type: ignore[arg-type]
        return cls(place, Cost(**known))  # type: ignore[arg-type]


class _Open:
    """A graph break that has been met. ``programs``: returns those that start after it."""

    def __init__(self, place: BreakPlace) -> None:
        self.place = place
        self.seconds = 0.0
        self.programs: Callable[[], Sequence[ProgramWeight]] = lambda: ()


class Costs:
    """The graph breaks of a watched region's captures, in their order."""

    def __init__(self) -> None:
        self._met: list[_Open] = []
        # The newest one, until its eager call has been made.
        self._open: _Open | None = None

    def meet(self, place: BreakPlace) -> None:
        """Notes a graph break, whose eager call comes next."""
        self._open = _Open(place)
        self._met.append(self._open)

    def lead_to(self, programs: Callable[[], Sequence[ProgramWeight]]) -> None:
        """Notes what returns the programs that start after the newest graph break."""
        if self._open is not None:
            self._open.programs = programs

    def during(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Makes the eager call of the newest graph break, and measures its time."""
        met, self._open = self._open, None
        if met is None:
            return call(*args)
        began = time.perf_counter()
        try:
            return call(*args)
        finally:
            met.seconds += time.perf_counter() - began

    def settled(self) -> list[BreakCost]:
        """Returns the costs so far. A program to which several graph breaks lead counts for the first one."""
        seen: set[int] = set()
        found = []
        for met in self._met:
            new = [program for program in met.programs() if program.key not in seen]
            seen.update([program.key for program in new])
            cost = Cost(1, sum([program.graphs for program in new]), sum([program.guards for program in new]), met.seconds)
            found.append(BreakCost(met.place, cost))
        return found


def total(costs: Iterable[BreakCost]) -> Cost:
    return sum([cost.cost for cost in costs], NO_COST)


def seconds_text(seconds: float) -> str:
    """Returns a time in the unit in which people read it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 µs"
