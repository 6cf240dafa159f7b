"""Lessons: facts that a region learns in a capture, about places and functions that its next captures treat differently."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

from fineline.frames.graph_limits import GraphLimits
from fineline.tracing.classes_made_anew import LocalClasses

# An instruction: its code, and its number there.
Site = tuple[CodeType, int]
# ... in an iteration of a loop, if each iteration has programs of its own.
IterationSite = tuple[weakref.ref[Any] | None, CodeType, int]
# Values that are noted for one instruction in one run.
MOST_ASKED = 64


class EagerFunction(NamedTuple):
    """A function that runs eagerly as one call. ``always``: also if it gets tensors. ``error``, ``reason``: of the graph break."""

    always: bool
    error: str
    reason: str


@dataclass(slots=True)
class FunctionLessons:
    """The functions that captures treat differently as a whole."""

    # Functions whose variables other code looks at.
    inspected: set[CodeType] = field(default_factory=set)
    # Functions that do nothing but break graphs, or have a program for each value.
    eager: dict[CodeType, EagerFunction] = field(default_factory=dict)
    # Functions that PyTorch's own mark allows in graphs and that have not kept the contract -> how often.
    broken_contracts: Counter[CodeType | None] = field(default_factory=Counter)

    def leave(self, code: CodeType, how: EagerFunction) -> bool:
        """Makes a function one eager call from now on; returns whether that is new."""
        before = self.eager.get(code)
        if before is not None and (before.always or not how.always):
            return False
        self.eager[code] = how
        return True


@dataclass(slots=True)
class NumberLessons:
    """The places where numbers that vary are constants, or eager code gets them."""

    # Instructions that format numbers that vary, if the text is read later: the numbers are constants there. None: texts that eager code gave.
    specialized_texts: set[Site | None] = field(default_factory=set)
    # Instructions at which C asks for the value of numbers that vary -> by run, the values they had.
    asked: dict[IterationSite, dict[object, list[list[object]]]] = field(default_factory=dict)
    # Those at which too many values were asked for: they run eagerly.
    asked_outside: set[IterationSite] = field(default_factory=set)
    # Instructions that draw a random number on which control flow depends.
    breaking_draws: set[Site] = field(default_factory=set)
    # Cached functions whose calls must find their entries.
    specialized_caches: set[CodeType] = field(default_factory=set)
    # Whether the backend asks for the value of numbers that vary.
    backend_asks: bool = False

    def ask(self, place: IterationSite, run: object, values: list[object], few: int) -> bool:
        """Notes the values that a ``run`` asks for at ``place``; returns whether the place runs eagerly, as ``few`` runs had others."""
        seen = self.asked.setdefault(place, {})
        # A loop may come here several times in one run.
        others = [known for other, known in seen.items() if other is not run]
        if len(others) >= few and not any([values in known for known in others]):
            self.asked_outside.add(place)
        own = seen.setdefault(run, [])
        outside = place in self.asked_outside
        if not outside and len(own) < MOST_ASKED:
            own.append(values)
        return outside

    def specialize_texts(self, places: Set[Site | None]) -> bool:
        """Makes the numbers in the texts that are made at ``places`` constants from the next capture on; returns whether that is new."""
        new = not places <= self.specialized_texts
        self.specialized_texts |= places
        return new


@dataclass
class Lessons:
    """Facts that one capture adds and the next ones use. They only grow, until the region is reset."""

    # Instructions that could not be captured, and run eagerly.
    eager_sites: set[Site] = field(default_factory=set)
    # Instructions with their handlers, for code with eager sites: by code info and number of such sites.
    linked: dict[tuple[int, int], list] = field(default_factory=dict)
    # Graph breaks so far: by code, the instructions that the frames around each were at.
    break_places: dict[CodeType, set[int]] = field(default_factory=dict)
    functions: FunctionLessons = field(default_factory=FunctionLessons)
    numbers: NumberLessons = field(default_factory=NumberLessons)
    graphs: GraphLimits = field(default_factory=GraphLimits)
    local_classes: LocalClasses = field(default_factory=LocalClasses)

    def limit_graphs(self, limits: GraphLimits) -> None:
        """Adds to what stays out of graphs."""
        self.graphs = self.graphs.and_also(limits)

    def of_alike(self) -> Lessons:
        """Returns the lessons of a region whose code is like this one's, but has eager sites of its own."""
        return replace(self, eager_sites=set(), linked={})

    def forget_sites(self) -> None:
        """Forgets what a reset of the region takes back."""
        self.eager_sites.clear()
        self.numbers.specialized_texts.clear()
        self.functions.broken_contracts.clear()
