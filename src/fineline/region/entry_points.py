"""The entry points of a region: where its programs start, and which of them the iterations of a loop share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fineline.codegen.frame_state import FrameState
from fineline.codegen.residual_program import ResidualProgram
from fineline.guards.policy_epoch import RULEBOOK
from fineline.region.dynamic_dims import DynamicDims
from fineline.region.entry_point import NOWHERE, EntryOwner, EntryPoint
from fineline.region.loop_merging import LoopIterations
from fineline.region.options import Options


class EntryPoints:
    """The entry points, in the order of their making; the first is the region's own, at which calls begin."""

    def __init__(self, region: EntryOwner, options: Options) -> None:
        self._options = options
        self.iterations = LoopIterations()
        self.first = EntryPoint(region, DynamicDims(options.dynamic))
        self._all = [self.first]
        # What varies, by the place after a graph break; the programs that lead there are many.
        self._varying: dict[Any, DynamicDims] = {None: self.first.varying}
        # The dispatchers of those that loops go back to.
        self._loops: dict[EntryPoint, Any] = {}
        # The rules of the process that programs were captured under.
        self._rules = RULEBOOK.facts()[0]

    def __iter__(self) -> Iterator[EntryPoint]:
        return iter(self._all)

    def __reversed__(self) -> Iterator[EntryPoint]:
        return reversed(self._all)

    def segments(self) -> list[ResidualProgram]:
        """Returns all programs, in the order of the entry points' making."""
        return [s for entry_point in self._all for s in entry_point.segments]

    def new(
        self, region: EntryOwner, frame_state: FrameState, raised: bool, declared: bool = True, passed: Mapping = NOWHERE, shared: EntryPoint | None = None
    ) -> EntryPoint:
        """Makes an entry point after a graph break, which is not among these yet. The same values vary as at a ``shared`` one."""
        # The same place in the code, met as often in the call, is behind each program that leads there.
        place = (raised, frame_state.stack, passed[frame_state.stack])
        varying = self._varying.setdefault(place, DynamicDims(self._options.dynamic)) if shared is None else shared.varying
        return EntryPoint(region, varying, frame_state, raised, declared, passed)

    def add(self, new: Iterable[EntryPoint]) -> None:
        """Adds those to which no other program leads."""
        self._all += [entry_point for entry_point in new if not entry_point.met]

    def follow_option(self) -> None:
        """Passes on the region's option ``dynamic``, which has been set again."""
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
        """Returns whether a loop goes back to an entry point."""
        return entry_point in self._loops

    # -- dropping programs ---------------------------------------------------------------------------------------------
    def drop_programs(self) -> None:
        """Drops all programs; what varies stays known."""
        self.first.clear()
        # Else new programs would go on with those behind the old ones.
        self._all = [self.first]
        self._loops.clear()

    def forget(self) -> None:
        self.drop_programs()
        self.iterations.forget()
        self._varying = {None: self.first.varying}

    def rules_changed(self) -> bool:
        """Returns whether the rules of the process are others since the last time: programs that were captured before fit no call."""
        before, self._rules = self._rules, RULEBOOK.facts()[0]
        return before != self._rules
