"""How a region offers its programs to those of equal callables, and runs one of theirs instead of capturing a call."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from fineline.codegen.continuation import Continuation
from fineline.codegen.programs import OwnParts, ResidualProgram
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.region.descriptions import describe_program
from fineline.region.disabled_frames import FrameRunner
from fineline.region.entry_point import CallShape, EntryPoint
from fineline.region.guard_dispatch import make_guard_program
from fineline.region.interface import CapturingRegion
from fineline.region.loop_merging import Loop, Way
from fineline.region.session.entry_frame import instance_of
from fineline.region.sharing.shared_programs import Capture, Circumstances, SharedProgram, SharedPrograms, SharedWay, circumstances
from fineline.report.events import Detail, Event


# -- offering --------------------------------------------------------------------------------------------------------------
class Offer:
    """What a session notes about a segment before its program is written, so that the program can be offered to other regions."""

    def __init__(self, region: CapturingRegion, entry_point: EntryPoint, shape: CallShape, interp: Interpreter) -> None:
        self._region, self._entry_point = region, entry_point
        self._events = len(region.reports.events)
        shared = entry_point.shared if entry_point.free else None
        # The writer drops the values.
        values = tuple([src.value for src in interp.trace.guards.roots()]) if shared is not None else ()
        self._when = circumstances(shape, region.backend, region.options, values) if shared is not None else None
        self._fired = Counter() if interp.rules is None else interp.rules.decisions()
        self._operators = interp.trace.recorder.calls

    def make(self, through: Callable[..., Any] | None = None, ways: tuple[Way, ...] = ()) -> None:
        """Offers the newest program. ``through``, ``ways``: its eager call and its ways on, if it ends at a graph break."""
        region, entry_point, when = self._region, self._entry_point, self._when
        programs, segment = entry_point.shared, entry_point.segments[-1] if entry_point.segments else None
        if programs is None or region.entry_points.member is None or when is None or segment is None or not all(map(_may_share, ways)):
            return
        unbound = segment.unbound
        if any([is_a(getattr(v, "__self__", v), FrameRunner) for v in unbound.constants.values()]):
            # It keeps regions for the callees of this one.
            return
        n = self._operators
        text = f"a program with {n} operator{'' if n == 1 else 's'}{', up to a graph break' if ways else ''}, captured for "
        text += f"{region.reports.name}, instance {region.entry_points.member.number}"
        events = [replace(event, detail={}) for event in region.reports.events[self._events :] if event.kind not in ("graph", "recompile", "restart")]
        programs.add(unbound, when, Capture(text, self._fired, tuple(events), through, tuple(map(_shared_way, ways))))


def _may_share(way: Way) -> bool:
    """Returns whether equal callables may go on in this way: not into an iteration of a loop, nor into code that runs eagerly."""
    state = way.entry_point.frame_state
    return type(way.go_on) is not Loop and way.entry_point.stretch is None and state is not None and not state.serves_iterations


def _shared_way(way: Way) -> SharedWay:
    point = way.entry_point
    assert point.frame_state is not None
    if point.shared is None:
        point.share(SharedPrograms())
    assert point.shared is not None
    return SharedWay(point.frame_state, point.raised, point.declared, point.passed, point.breaks, weakref.ref(point.varying), point.shared)


# -- adopting --------------------------------------------------------------------------------------------------------------
def adopt(region: CapturingRegion, entry_point: EntryPoint, args: tuple, kwargs: dict) -> Callable[[], Any] | None:
    """Returns a function that runs a call by a program of an equal callable, which the region has then, too; None if none fits."""
    values, shape, programs = (*args, *kwargs.values()), CallShape(len(args), tuple(kwargs)), entry_point.shared
    when: Circumstances | None = None
    if programs is not None and entry_point.free:
        when = circumstances(shape, region.backend, region.options, values)
    if programs is None or when is None:
        return None
    own, instance = [segment.unbound for segment in entry_point.segments], instance_of(region.fn)
    for program, unbound in programs.under(when):
        if unbound in own:
            continue
        guards = make_guard_program(len(values), unbound.steps(instance), unbound.outputs, region.options.evaluator)
        got = guards.check(values)
        if got is not None:
            segment = unbound.bind(instance, OwnParts(entry_point.again(shape.kwnames), _continuation(region, program.capture), region.run_frame))
            programs.use(program)
            _keep(region, entry_point, shape, segment, program, guards)
            return partial(segment.run, *got)
        if not own and entry_point is not region.entry and not entry_point.raised:
            entry_point.varying.compare_result(unbound.steps(instance), values[-1], len(values) - 1)
    return None


def _keep(
    region: CapturingRegion, entry_point: EntryPoint, shape: CallShape, segment: ResidualProgram, program: SharedProgram, guards: object
) -> None:
    """Adds a program of an equal callable to the region, and reports that."""
    reports, place = region.reports, region.reports.place_at(entry_point)
    reports.note(Event("shared", "FL005", program.capture.text, *place))
    for event in program.capture.events:
        reports.note(event)
    detail: Detail = {"program": partial(describe_program, segment)}
    reports.tell(Event("program", "FL002", f"program {region.budget.programs}", *place, detail=detail))
    reports.fired.update(program.capture.fired)
    region.graphs.share(segment.graph)
    entry_point.add(shape, segment, "eager", guards)
    region.count_program(entry_point)


def _continuation(region: CapturingRegion, capture: Capture) -> Continuation | None:
    """Returns the way on after a program that ends at a graph break, through entry points of this region."""
    if not capture.ways:
        return None
    after, *failed = [_entry_point(region, way) for way in capture.ways]
    return Continuation(after.dispatcher, capture.through, failed[0].dispatcher if failed else None)


def _entry_point(region: CapturingRegion, way: SharedWay) -> EntryPoint:
    """Returns this region's entry point for a way on of an equal callable's program."""
    points = region.entry_points
    for point in points:
        if point.shared is way.programs and point.is_led_to:
            point.meet()
            return point
    varying = way.varying()
    own = points.new(region, way.state, way.raised, way.declared, way.passed, known=varying.copy() if varying is not None else None)
    own.note_breaks(way.breaks)
    own.share(way.programs)
    points.add([own])
    # As a capture does: the loops around these positions contain the graph break.
    for info, ip in way.state.chain:
        region.lessons.break_places.setdefault(info.code, set()).add(ip)
    return own
