"""The entry points of a region: where its programs start, and which of them the iterations of a loop share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

from fineline.codegen.frame_state import FrameState
from fineline.codegen.programs import ResidualProgram
from fineline.guards.policy_epoch import RULEBOOK
from fineline.region.dynamic_dims import DynamicDims
from fineline.region.entry_point import NOWHERE, EntryOwner, EntryPoint
from fineline.region.loop_merging import LoopIterations
from fineline.region.options import Options
from fineline.region.sharing.shared_programs import Member

# The region's type is made of this module's classes.
RegionT_contra = TypeVar("RegionT_contra", contravariant=True)


class Storage(Protocol[RegionT_contra]):
    """A store of programs, as one region uses it: it may have programs from another process, and keeps those of this one."""

    def begin(self, region: RegionT_contra) -> None:
        """Adds the stored programs to a region, at its first call."""

    def keep(self, region: RegionT_contra) -> None:
        """Stores the programs of a region, if a call has added some."""

    def give_up(self, region: RegionT_contra) -> bool:
        """Drops the region's programs, because they reach the recompile limit and a call fits none; returns whether stored ones were among them."""


class EntryPoints:
    """The entry points, in the order in which they were made; the first is the region's entry, at which calls begin."""

    def __init__(self, region: EntryOwner, options: Options, member: Member | None = None, storage: Storage[Any] | None = None) -> None:
        """``member``: the region's place among those of equal callables, whose programs it may run; None if it captures its own.

        ``storage``: has programs of other processes, and keeps these.
        """
        self._options = options
        self.member = member
        self.storage = storage
        self.iterations = LoopIterations()
        self.first = EntryPoint(region, DynamicDims(options.dynamic))
        if member is not None:
            self.first.share(member.programs)
        self._all = [self.first]
        # The values that vary, by place after a graph break: many programs may lead there.
        self._varying: dict[Any, DynamicDims] = {None: self.first.varying}
        # The dispatchers of the entry points to which loops return.
        self._loops: dict[EntryPoint, Any] = {}
        # The process-wide rules under which programs were captured.
        self._rules = RULEBOOK.facts()[0]

    def __iter__(self) -> Iterator[EntryPoint]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[EntryPoint]:
        return reversed(self._all)

    def segments(self) -> list[ResidualProgram]:
        """Returns all programs, in the order of their entry points."""
        return [s for entry_point in self._all for s in entry_point.segments]

    def new(
        self, region: EntryOwner, frame_state: FrameState, raised: bool, declared: bool = True, passed: Mapping = NOWHERE, shared: EntryPoint | None = None,
        known: DynamicDims | None = None,
    ) -> EntryPoint:  # fmt: skip
        """Makes an entry point after a graph break, but does not add it. The same values vary as at a ``shared`` one.

        ``known``: the values that are known to vary, unless this region knows others.
        """
        # All programs that lead to this place in the code, for the same number of times in the call, share the values that vary.
        place = (raised, frame_state.stack, passed[frame_state.stack])
        varying = self._varying.setdefault(place, known or DynamicDims(self._options.dynamic)) if shared is None else shared.varying
        return EntryPoint(region, varying, frame_state, raised, declared, passed)

    def add(self, new: Iterable[EntryPoint]) -> None:
        """Adds the entry points to which no other program leads."""
        self._all += [entry_point for entry_point in new if not entry_point.met]

    def follow_option(self) -> None:
        """Passes on the new value of the region's option ``dynamic``."""
        for varying in self._varying.values():
            varying.follow_option(self._options.dynamic)

    # -- loops ---------------------------------------------------------------------------------------------------------
    def close_loop(self, own: EntryPoint, earlier: EntryPoint) -> None:
        """Replaces an ``own`` entry point by an ``earlier`` one, which closes a loop."""
        earlier.meet()
        self._loops[earlier] = earlier.dispatcher
        if own in self._all:
            self._all.remove(own)

    def closes_loop(self, entry_point: EntryPoint) -> bool:
        """Returns whether a loop returns to an entry point."""
        return entry_point in self._loops

    # -- dropping programs ---------------------------------------------------------------------------------------------
    def drop_programs(self) -> None:
        """Drops all programs; the values that vary stay known."""
        self.first.clear()
        for entry_point in self._all:
            entry_point.withdraw()
        # Otherwise new programs would continue with those after the old ones.
        self._all = [self.first]
        self._loops.clear()

    def forget(self) -> None:
        self.drop_programs()
        self.iterations.forget()
        self._varying = {None: self.first.varying}

    def rules_changed(self) -> bool:
        """Returns whether the process-wide rules have changed since the last time: earlier programs then fit no call."""
        before, self._rules = self._rules, RULEBOOK.facts()[0]
        return before != self._rules
