"""Lessons: facts that a region learns in a capture, about places and functions that its next captures treat differently."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple

from fineline.tracing.local_classes import LocalClasses

# An instruction: its code, and its number there.
Site = tuple[CodeType, int]
# ... in an iteration of a loop, if each iteration has programs of its own.
IterationSite = tuple[weakref.ref[Any] | None, CodeType, int]


class EagerFunction(NamedTuple):
    """A function that runs eagerly as one call. ``always``: also if it gets tensors. ``error``, ``reason``: of the graph break."""

    always: bool
    error: str
    reason: str


@dataclass
class Lessons:
    """Facts that one capture adds and the next ones use. They only grow, until the region is reset."""

    # Instructions that could not be captured, and run eagerly.
    eager_sites: set[Site] = field(default_factory=set)
    # Instructions that format numbers that vary, if the text is read later: the numbers are constants there. None: texts that eager code gave.
    specialized_texts: set[Site | None] = field(default_factory=set)
    # Instructions at which C asks for the value of numbers that vary -> by run, the values they had.
    asked_numbers: dict[IterationSite, dict[object, list]] = field(default_factory=dict)
    # Those at which too many values were asked for: they run eagerly.
    asked_outside: set[IterationSite] = field(default_factory=set)
    # Graph breaks so far: by code, the instructions that the frames around each were at.
    break_places: dict[CodeType, set[int]] = field(default_factory=dict)
    # Functions whose variables other code looks at.
    inspected_functions: set[CodeType] = field(default_factory=set)
    # Functions that do nothing but break graphs, or have a program for each value.
    eager_functions: dict[CodeType, EagerFunction] = field(default_factory=dict)
    # Functions that PyTorch's own mark allows in graphs and that have not kept the contract -> how often.
    broken_contracts: Counter[CodeType | None] = field(default_factory=Counter)
    # Instructions that draw a random number on which control flow depends.
    breaking_draws: set[Site] = field(default_factory=set)
    # Cached functions whose calls must find their entries.
    specialized_caches: set[CodeType] = field(default_factory=set)
    local_classes: LocalClasses = field(default_factory=LocalClasses)
    # Whether the context of an inference mode has to cross graph breaks.
    inference_mode_breaks: bool = False
    # Whether NumPy arrays that are made of constants are constants.
    constant_arrays: bool = True
    # Whether sparse, nested and quantized tensors stay out of graphs.
    dense_only: bool = False
    # Whether the backend asks for the value of numbers that vary.
    asks_for_numbers: bool = False
    # Whether the capturing call has to run the backend's code already, because the operators cannot run one by one before.
    compiled_first_call: bool = False
    # Names of operators that have no fake kernel and that the backend has failed on: they stay out of graphs.
    no_fake_kernel: frozenset[str] = frozenset()
    # Instructions with their handlers, for code with eager sites: by code info and number of such sites.
    linked: dict[tuple[int, int], list] = field(default_factory=dict)

    def learn(self, name: str, value: Any) -> None:
        """Sets the field ``name`` to ``value``, or adds ``value`` to it if it is a set."""
        held = getattr(self, name)
        setattr(self, name, held | value if type(held) is frozenset else value)

    def of_alike(self) -> Lessons:
        """Returns the lessons of a region whose code is like this one's, but has eager sites of its own."""
        return replace(self, eager_sites=set(), linked={})

    def forget_sites(self) -> None:
        """Forgets what a reset of the region takes back."""
        self.eager_sites.clear()
        self.specialized_texts.clear()
        self.broken_contracts.clear()
