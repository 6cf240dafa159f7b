"""Decides where a program continues after a graph break: at a new entry point, at one of another path in the code, or back in a loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.codegen.frame_state import FrameState
from fineline.frames.graph_breaks import GraphBreak
from fineline.identity import AddressSet
from fineline.interp.interpreter import Interpreter
from fineline.region.entry_point import EagerStretch, EntryPoint
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import COMPARED_ITERATIONS, FEW_ITERATIONS, Loop, Way


class Continuations:
    """The ways on from the graph breaks of one session. ``passed``: the number of graph breaks so far, by place."""

    def __init__(self, region: CapturingRegion, interp: Interpreter, passed: Mapping) -> None:
        self._region, self._interp = region, interp
        self.passed = passed

    @property
    def graph_breaks(self) -> int:
        return sum(self.passed.values())

    def after(self, frame_state: FrameState) -> dict[Any, int]:
        """Returns the graph breaks so far, including one with this state of the frames."""
        return {**self.passed, frame_state.stack: self.passed.get(frame_state.stack, 0) + 1}

    def pass_by(self, frame_state: FrameState) -> None:
        """Counts a graph break."""
        self.passed = self.after(frame_state)

    def leave_function(self, stretch: EagerStretch) -> None:
        """Removes the graph breaks in a function whose rest ran eagerly: it counts as one."""
        self.passed = stretch.without_left(self.passed)

    def snapshot_at(self, graph_break: GraphBreak, place: tuple[str, int], held: AddressSet | None = None) -> Snapshot:
        """Returns the state of the frames at a graph break, in a form that iterations of a loop share as far as possible."""
        iterations = self._region.entry_points.iterations
        snapshot = take_snapshot(self._interp, graph_break, place, True, held, iterations.numbers)
        frame_state = snapshot.state
        if self._region.options.dynamic is False or not (iterations.has_numbers(frame_state) or self._is_late(frame_state)):
            return snapshot
        last = next(self._iterations_before(frame_state), None)
        return self.snapshot_at(graph_break, place, held) if last is not None and iterations.learn(frame_state, last) else snapshot

    def continuation_after(self, frame_state: FrameState, raised: bool, declared: bool, alone: bool) -> Way:
        """Returns the way on after a graph break; it shares an existing entry point if it can, unless ``alone``."""
        points, passed = self._region.entry_points, self.after(frame_state)
        if alone:
            own = points.new(self._region, frame_state, raised, declared, passed)
            return Way(own, own.dispatcher)
        # An entry point after the same graph breaks is on another path through the code; one after fewer is an earlier iteration.
        for entry_point in points:
            if entry_point.passed == passed and entry_point.stands_for(frame_state, raised, declared):
                entry_point.meet()
                return Way(entry_point, entry_point.dispatcher)
        earlier = [entry_point for entry_point in self._points_before(frame_state) if entry_point.stands_for(frame_state, raised, declared)]
        # In the first iterations the items of a list are constants, as numbers are.
        shared = earlier[0] if earlier and not (frame_state.values.carried and not self._is_late(frame_state)) else None
        own = points.new(self._region, frame_state, raised, declared, passed, shared)
        own.varying.differ(frame_state.numbers.names)
        return Way(own, Loop(own, earlier, points) if earlier else own.dispatcher)

    def _is_late(self, frame_state: FrameState) -> bool:
        """Returns whether `FEW_ITERATIONS` have reached this place before."""
        return self.passed.get(frame_state.stack, 0) >= FEW_ITERATIONS

    def _points_before(self, frame_state: FrameState) -> Iterator[EntryPoint]:
        """Returns a few entry points at the same place, the newest first; none if iterations share no programs."""
        points = self._region.entry_points
        # Iterations without an operator need no programs: in the end the function runs eagerly.
        if points.iterations.are_unrolled(frame_state) or not self._interp.trace.recorder.calls:
            return iter(())
        stack = frame_state.stack
        return islice((point for point in reversed(points) if point.frame_state is not None and point.frame_state.stack == stack), COMPARED_ITERATIONS)

    def _iterations_before(self, frame_state: FrameState) -> Iterator[FrameState]:
        return (point.frame_state for point in self._points_before(frame_state) if point.frame_state is not None)
