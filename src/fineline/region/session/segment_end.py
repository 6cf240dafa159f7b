"""The end of a segment at a graph break: its program, and the entry points at which execution continues."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.codegen.frame_snapshot import Snapshot
from fineline.codegen.residual_program import ResidualWriter
from fineline.frames.frame import Frame, stack
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import user_stack
from fineline.interp.break_storms import STORM, frame_in_storm, leave
from fineline.interp.interpreter import Interpreter
from fineline.objects.hook_order import settle_numbers
from fineline.region.entry_point import EntryPoint
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import Way
from fineline.region.session.continuations import Continuations
from fineline.report.events import Event
from fineline.symbolic.arithmetic import holds
from fineline.tensor_ops.backing import computing

# The kinds of a result that vary if it was made from texts or numbers that do.
_MADE = ("texts", "numbers")
# By the graph break: the kinds of a result that vary before they have been seen to. A float or a size that comes from the values in a tensor is
# another one in nearly each call; an int is often a size or an index, and the same in many.
_RESULTS: Mapping[str, tuple[str, ...]] = MappingProxyType({"FL448": _MADE, "FL502": ("floats",), "FL508": ("rows",)})


class SegmentEnd:
    """The end of one segment at a graph break: its program, and the ways on."""

    # The state of the frames, with the objects that are alive in them.
    snapshot: Snapshot
    # The writer of the segment's program.
    writer: ResidualWriter
    # The way on with the result of the call at the graph break, and the one with its exception, if a frame handles that.
    after: Way
    failed: Way | None

    def __init__(
        self, region: CapturingRegion, interp: Interpreter, ways: Continuations, graph_break: GraphBreak, place: tuple[str, int], declared: bool
    ) -> None:
        self._region, self._interp, self._ways = region, interp, ways
        self._graph_break, self._place, self._declared = graph_break, place, declared
        # The frame whose rest runs eagerly, and whether that is new.
        self._left: Frame | None = None
        self._newly = False

    def leave_storm(self) -> None:
        """Makes the rest of a frame run eagerly, if the frame is in a break storm."""
        interp = self._interp
        left = self._left = frame_in_storm(interp, self._declared)
        if left is not None:
            self._newly = leave(interp, left)
            text = f"the rest of {left.info.code.co_qualname}, which {STORM}, runs eagerly"
            self._region.reports.note(Event("eager", "FL436", text, *self._place, detail={"stack": user_stack(interp.frame)}))

    def write(self, name: str) -> None:
        """Writes the program. If it rebuilds an object of the snapshot itself, takes the snapshot again, with the object as a live value."""
        settle_numbers(self._interp.trace, self._interp.frame)
        self.snapshot = self._ways.snapshot_at(self._graph_break, self._place)
        self._write(name)
        while found := self.snapshot.rebuilt.intersection(self.writer.rebuild.built):
            found.update(self.snapshot.held)
            self.snapshot = self._ways.snapshot_at(self._graph_break, self._place, found)
            self._write(name)

    def _write(self, name: str) -> None:
        interp, graph_break, frame_state = self._interp, self._graph_break, self.snapshot.state
        alone = self._left is not None
        self.after = self._ways.continuation_after(frame_state, False, self._declared, alone)
        self.failed = self._ways.continuation_after(frame_state, True, self._declared, alone) if frame_state.has_handlers else None
        for entry_point in self._entry_points():
            entry_point.note_breaks(tuple([f.extras.breaks for f in stack(interp.frame)]))
        self.writer = ResidualWriter(interp.trace, name)
        dispatchers = (self.after.go_on, self.failed.go_on if self.failed is not None else None)
        with computing(interp):
            self.writer.graph_break(
                graph_break.fn, graph_break.args_, graph_break.kwargs, self.snapshot.roots, *dispatchers, interp.place(), interp.exceptions.handled
            )

    def _entry_points(self) -> list[EntryPoint]:
        return [self.after.entry_point] if self.failed is None else [self.after.entry_point, self.failed.entry_point]

    def ways_on(self) -> tuple[Callable[..., Any] | None, tuple[Way, ...]]:
        """Returns the function that makes the eager call at the graph break, and the ways on after it."""
        assert self.writer.continuation is not None
        return self.writer.continuation.through, (self.after,) if self.failed is None else (self.after, self.failed)

    def add_entry_points(self, f: Frame) -> None:
        """Adds the entry points to those of the region, with the known facts. ``f``: the frame that breaks the graph."""
        if self._left is not None:
            self.after.entry_point.run_eagerly_after(self._left.info, self._newly)
        self._region.entry_points.add(self._entry_points())
        if self._region.watch.recording is not None and self._graph_break.met is not None:
            self._graph_break.met.programs = [self._region.watch.recording.programs_at(entry_point) for entry_point in self._entry_points()]
        # The positions of the frames around a graph break: the loops around these positions contain the break.
        for frame in stack(f):
            self._region.lessons.break_places.setdefault(frame.info.code, set()).add(frame.ip)
        if self._interp.trace.active:
            self._tell_made_values()

    def _tell_made_values(self) -> None:
        """Notes that texts that vary before a graph break vary after it, and so does a result that is made from them, such numbers, or a tensor's values."""
        texts, snapshot, graph_break = self._interp.trace.deferred.texts, self.snapshot, self._graph_break
        for name in [name for name, v in zip(snapshot.state.values.names, snapshot.roots, strict=True) if v in texts]:
            for entry_point in self._entry_points():
                entry_point.varying.expect(name, ("texts",))
        made = any([a in texts or holds(a) for a in (*graph_break.args_, *graph_break.kwargs.values())])
        self.after.entry_point.varying.expect("result", _MADE if made else _RESULTS.get(graph_break.error, ()))

    def vary(self) -> None:
        """Makes exactly those live values vary after the graph break that are symbolic at it."""
        for entry_point in self._entry_points():
            entry_point.vary(self.snapshot.roots, functools.partial(self._interp.backing.memory, self._interp))
