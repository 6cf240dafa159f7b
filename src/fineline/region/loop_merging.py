"""Where a program goes on behind a graph break: at a continuation of its own, where another way through the code meets it, or back in a loop."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from itertools import islice
from typing import Any, NamedTuple

from fineline.codegen.frame_state import FrameState, Turned
from fineline.codegen.loop_numbers import between
from fineline.frames.graph_breaks import GraphBreak
from fineline.region.entry_point import EntryPoint

# So many turns of a loop are looked at for one that is like the newest; and so many may differ from all that are looked at.
TURNS = 3
# So many in a row of two loops in one another may differ from those before; then each has programs of its own.
DIFFERENT_TURNS = 5
# As many turns as most loops over layers have are captured as they come, on the real values: what is constant in the code stays so.
FEW_TURNS = 4
# If the programs at a place in a loop come from no more calls than these, it is the turns that differ.
FEW_CALLS = 2


class Way(NamedTuple):
    """A continuation, and what the program that leads there calls."""

    site: EntryPoint
    go_on: Callable[..., Any]

    def leads_back(self, live: tuple) -> bool:
        """Returns whether the programs of an earlier turn of a loop do the rest, with so much alive."""
        return type(self.go_on) is Loop and self.go_on.leads_back(live)


class Loop:
    """The way to a place that the call has passed before: whether it leads on, or back to an earlier turn that fits, the first call decides."""

    def __init__(self, own: EntryPoint, earlier: Iterable[EntryPoint]) -> None:
        self._own, self._site = own.dispatcher, weakref.ref(own)
        self._earlier = [weakref.ref(site) for site in earlier]
        self._go_on: Callable[..., Any] | None = None

    def __call__(self, *live: Any) -> Any:
        return (self._go_on or self._decide(live))(*live)

    def leads_back(self, live: tuple) -> bool:
        return (self._go_on or self._decide(live)) is not self._own

    def _decide(self, live: tuple) -> Callable[..., Any]:
        onward, own = self._own, self._site()
        if self._go_on is not None or onward is None:
            # Another thread has just decided.
            return self._go_on or self
        found = next((site for ref in self._earlier if (site := ref()) is not None and site.fits(live)), None)
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

    def __init__(self, site: EntryPoint) -> None:
        self._site = weakref.ref(site)

    def __call__(self, *live: Any) -> Any:
        site = self._site()
        # If the region drops its programs, the call under way still holds those that it began with, and what they lead to.
        assert site is not None
        return site.dispatcher(*live)


def template_at(run: Any, border: GraphBreak, held: Set[int] = frozenset()) -> FrameState:
    """The shape of the frames at a border, which the turns of a loop have in common as far as they can."""
    turns = run.region.turns
    template = FrameState(run.vm, border, True, held, turns.numbers)
    return template_at(run, border, held) if turns.learn(run, template) else template


def way_behind(run: Any, template: FrameState, raised: bool, declared: bool, passed: Mapping, alone: bool) -> Way:
    """Returns the way on behind a border; unless it is to be ``alone``, to where others lead as well."""
    region = run.region
    if alone:
        own = EntryPoint(region, template, raised, declared, passed)
        return Way(own, own.dispatcher)
    # Behind as many borders there is another way through the code, behind fewer an earlier turn.
    for site in region.sites:
        if site.passed == passed and site.stands_for(template, raised, declared):
            site.met = True
            return Way(site, site.dispatcher)
    earlier = [site for site in turns_before(run, template) if site.stands_for(template, raised, declared)]
    # What the items of a list are is constant in the first turns, as numbers are.
    shared = earlier and not (template.carried and run.passed.get(template.stack, 0) < FEW_TURNS)
    own = EntryPoint(region, template, raised, declared, passed, earlier[0].varying if shared else None)
    own.varying.differ(template.numbers)
    return Way(own, Loop(own, earlier) if earlier else own.dispatcher)


def turns_before(run: Any, template: FrameState) -> Iterator[EntryPoint]:
    """Returns the continuations at the same place that were made last, the newest first."""
    # Turns without an operator are no work for programs: in the end the function is left to run eagerly.
    if template.chain in run.region.turns.unrolled or not run.vm.cap.recorder.calls:
        return iter(())
    stack = template.stack
    return islice((site for site in reversed(run.region.sites) if site.template is not None and site.template.stack == stack), TURNS)


class Turns:
    """By the frames at each place in loops: which numbers are alive there, that would be constants else, as they tell the turns apart."""

    def __init__(self) -> None:
        self.numbers: dict[Any, Turned] = {}
        # Where each turn needs programs of its own in any case, and how many in a row did.
        self.unrolled: set[Any] = set()
        self._others: Counter[Any] = Counter()

    def learn(self, run: Any, template: FrameState) -> bool:
        """Returns whether there is more that tells this turn from the one before it."""
        known = self.numbers.get(template.chain, frozenset())
        if run.region.options.dynamic is False or (not known and run.passed.get(template.stack, 0) < FEW_TURNS):
            return False
        last = next(turns_before(run, template), None)
        if last is None or last.template is None:
            return False
        found = between(template, last.template)
        if found <= known:
            return False
        self.numbers[template.chain] = known | found
        return True

    def another(self, site: EntryPoint) -> None:
        """A turn that is like none before it."""
        template = site.template
        if template is not None and (template.turned or (template.carried and site.passed[template.stack] > FEW_TURNS)):
            self._others[template.chain] += 1
            # Two loops in one another come to a place more than once a turn of the outer one.
            if self._others[template.chain] >= (DIFFERENT_TURNS if template.turned and template.carried else TURNS):
                self.unroll(site)

    def again(self, site: EntryPoint) -> None:
        """A turn that is like one before it."""
        if site.template is not None:
            self._others.pop(site.template.chain, None)

    def unroll(self, site: EntryPoint) -> None:
        """From now on each turn has a place of its own."""
        if site.template is not None:
            self.unrolled.add(site.template.chain)
            self.numbers.pop(site.template.chain, None)

    def forget(self) -> None:
        self.numbers.clear()
        self.unrolled.clear()
        self._others.clear()
