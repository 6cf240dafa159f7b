"""What graph breaks and rules cost, measured while a call is explained: graphs, guards, and the time of the eager calls."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple, Self, TypedDict, TypeVar, TypeVarTuple

from fineline.stacks import StackPlace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# Shorter times are not shown: they are those of any call.
SHORTEST = 1e-6


class BreakPlace(NamedTuple):
    """A graph break, as its event names it. ``stack``: the frames that lead to it, the outermost first."""

    id: str
    reason: str
    file: str
    line: int
    rule: str
    stack: tuple[StackPlace, ...] = ()


class CostFacts(TypedDict):
    """A cost, for JSON."""

    breaks: int
    graphs: int
    guards: int
    seconds: float
    unmeasured: int


@dataclass(frozen=True)
class Cost:
    """What graph breaks cost: the graphs and guards of the programs that start after them, and the time of the eager calls at them.

    ``unmeasured``: the number of eager calls whose time is not known. A difference of two costs may be negative: a saving.
    """

    breaks: int = 0
    graphs: int = 0
    guards: int = 0
    seconds: float = 0.0
    unmeasured: int = 0

    def __add__(self, other: Cost) -> Cost:
        return self._plus(other, 1)

    def __sub__(self, other: Cost) -> Cost:
        return self._plus(other, -1)

    def _plus(self, other: Cost, sign: int) -> Cost:
        counts = self.breaks + sign * other.breaks, self.graphs + sign * other.graphs, self.guards + sign * other.guards
        # What is not known in one of them is not known in their difference.
        return Cost(*counts, self.seconds + sign * other.seconds, self.unmeasured + other.unmeasured)

    def __str__(self) -> str:
        """Returns "costs …" and "saves …", or "costs nothing"."""
        return ", ".join([f"{word} {', '.join(parts)}" for word, parts in (("costs", self._parts(1)), ("saves", self._parts(-1))) if parts]) or "costs nothing"

    def _parts(self, sign: int) -> list[str]:
        counted = [(self.breaks * sign, "graph break"), (self.graphs * sign, "graph"), (self.guards * sign, "guard")]
        parts = [count_text(n, noun) for n, noun in counted if n > 0]
        if self.seconds * sign >= SHORTEST:
            parts.append(f"{seconds_text(self.seconds * sign)} of eager calls")
        if self.unmeasured and sign > 0:
            parts.append(f"{count_text(self.unmeasured, 'eager call')} (not measured)")
        return parts

    def as_dict(self) -> CostFacts:
        return CostFacts(breaks=self.breaks, graphs=self.graphs, guards=self.guards, seconds=self.seconds, unmeasured=self.unmeasured)


def count_text(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


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
        stack = tuple([(file, line, function) for file, line, function in place.stack])
        return cls(place._replace(stack=stack), Cost(**known))  # type: ignore[arg-type]


class Collections:
    """Measures the garbage collections in a block: a capture puts them off, and its eager calls would seem to take as long."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._began = 0.0

    def __enter__(self) -> Self:
        gc.callbacks.append(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        gc.callbacks.remove(self._see)

    def _see(self, phase: str, _: object) -> None:
        if phase == "start":
            self._began = time.perf_counter()
        else:
            self.seconds += time.perf_counter() - self._began


class MetBreak:
    """A graph break in a watched capture."""

    def __init__(self, place: BreakPlace) -> None:
        self.place = place
        # The time of its eager call; None: the call has not been made, or not where it would be measured.
        self.seconds: float | None = None
        # The costs of the programs that start after it, in a list for each entry point there.
        self.programs: Sequence[Sequence[Cost]] = ()

    def during(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """Makes its eager call, and measures the time without that of garbage collections."""
        with Collections() as collections:
            began = time.perf_counter()
            try:
                return call(*args)
            finally:
                self.seconds = (self.seconds or 0.0) + time.perf_counter() - began - collections.seconds


def total(costs: Iterable[BreakCost]) -> Cost:
    return sum([cost.cost for cost in costs], NO_COST)


def seconds_text(seconds: float) -> str:
    """Returns a time in the unit in which people read it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return "0 µs"
