"""Lessons: facts about places and functions that a region learns in one capture and applies in its next captures."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

from fineline.frames.graph_limits import GraphLimits
from fineline.tracing.recreated_classes import LocalClasses

# An instruction: its code, and its number there.
Site = tuple[CodeType, int]
# An instruction in one iteration of a loop, if each iteration has programs of its own; else the reference is None.
IterationSite = tuple[weakref.ref[Any] | None, CodeType, int]
# For each dict of the hooks on a module: their numbers, or the ranks of these.
Hooks = tuple[tuple[int, ...], ...]
# The most values that are noted for one instruction in one run.
MOST_ASKED = 64


class EagerFunction(NamedTuple):
    """A function that runs eagerly as one call. ``always``: even if it takes tensors. ``error``, ``reason``: the graph break's id and text."""

    always: bool
    error: str
    reason: str


@dataclass(slots=True)
class FunctionLessons:
    """The functions that captures treat differently as a whole."""

    # Functions whose variables other code inspects.
    inspected: set[CodeType] = field(default_factory=set)
    # Functions that only break graphs, or have a program for each value.
    eager: dict[CodeType, EagerFunction] = field(default_factory=dict)
    # Functions that PyTorch's own mark allows in graphs and that broke the contract: how often each did.
    broken_contracts: Counter[CodeType | None] = field(default_factory=Counter)

    def leave(self, code: CodeType, how: EagerFunction) -> bool:
        """Makes a function one eager call from now on; returns whether this is new."""
        before = self.eager.get(code)
        if before is not None and (before.always or not how.always):
            return False
        self.eager[code] = how
        return True


@dataclass(slots=True)
class NumberLessons:
    """The places where varying numbers become constants, or where eager code reads them."""

    # Instructions that format varying numbers into a text that is read later: the numbers become constants there. None: texts from eager code.
    specialized_texts: set[Site | None] = field(default_factory=set)
    # Instructions at which C reads the value of varying numbers: the values that they had, by run.
    asked: dict[IterationSite, dict[object, list[list[object]]]] = field(default_factory=dict)
    # Those instructions at which too many values were read: they run eagerly.
    asked_outside: set[IterationSite] = field(default_factory=set)
    # Instructions that draw a random number on which control flow depends.
    breaking_draws: set[Site] = field(default_factory=set)
    # Cached functions whose calls must find their entries.
    specialized_caches: set[CodeType] = field(default_factory=set)
    # Whether the backend reads the value of varying numbers.
    backend_asks: bool = False

    def ask(self, place: IterationSite, run: object, values: list[object], few: int) -> bool:
        """Notes the values that a ``run`` reads at ``place``; returns whether the place runs eagerly because ``few`` runs read other values."""
        seen = self.asked.setdefault(place, {})
        # A loop may reach this place several times in one run.
        others = [known for other, known in seen.items() if other is not run]
        if len(others) >= few and not any([values in known for known in others]):
            self.asked_outside.add(place)
        own = seen.setdefault(run, [])
        outside = place in self.asked_outside
        if not outside and len(own) < MOST_ASKED:
            own.append(values)
        return outside

    def specialize_texts(self, places: Set[Site | None]) -> bool:
        """Makes the numbers in texts made at ``places`` constants from the next capture on; returns whether this is new."""
        new = not places <= self.specialized_texts
        self.specialized_texts |= places
        return new


class HookLessons:
    """The numbers of the hooks on modules in captures, by the user's expression for the module."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Hooks, Hooks]] = {}
        self._varying: set[str] = set()

    def ask(self, of: str, numbers: Hooks, ranks: Hooks) -> bool:
        """Returns whether hooks of the same ranks have had other numbers in an earlier capture; notes the numbers."""
        known, self._newest[of] = self._newest.get(of), (numbers, ranks)
        if known is not None and known[1] == ranks and known[0] != numbers:
            self._varying.add(of)
        return of in self._varying


@dataclass
class Lessons:
    """Facts that one capture adds and the next ones use. They only grow, until the region is reset."""

    # Instructions that could not be captured and run eagerly.
    eager_sites: set[Site] = field(default_factory=set)
    # Instructions with their handlers, for code with eager sites: by code info and number of such sites.
    linked: dict[tuple[int, int], list] = field(default_factory=dict)
    # Graph breaks so far, by code: the instructions at which the frames around each break were.
    break_places: dict[CodeType, set[int]] = field(default_factory=dict)
    functions: FunctionLessons = field(default_factory=FunctionLessons)
    numbers: NumberLessons = field(default_factory=NumberLessons)
    hooks: HookLessons = field(default_factory=HookLessons)
    graphs: GraphLimits = field(default_factory=GraphLimits)
    local_classes: LocalClasses = field(default_factory=LocalClasses)
    # Whether the code changes the default device: it is a function mode, which a capture then takes off as it does others.
    sets_device: bool = False

    def limit_graphs(self, limits: GraphLimits) -> None:
        """Adds limits on what a graph may contain."""
        self.graphs = self.graphs.and_also(limits)

    def of_alike(self) -> Lessons:
        """Returns the lessons for a region with equal code, whose eager sites are separate, and whose modules have other hooks."""
        return replace(self, eager_sites=set(), linked={}, hooks=HookLessons())

    def forget_sites(self) -> None:
        """Forgets the eager sites, the specialized texts and the broken contracts, because the region is reset."""
        self.eager_sites.clear()
        self.numbers.specialized_texts.clear()
        self.functions.broken_contracts.clear()
