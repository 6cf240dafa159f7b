"""Decides whether the graph of a captured segment is compiled or runs eagerly, and adds the segment's program to its entry point."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.background.graph_job import GraphJob
from fineline.codegen.residual_program import ResidualWriter
from fineline.kinds import is_a
from fineline.region.descriptions import describe_program, place_of
from fineline.region.entry_point import CallShape, EntryPoint
from fineline.region.interface import CapturingRegion
from fineline.region.session.concurrent_trace import ConcurrentTrace
from fineline.region.session.program_costs import measure
from fineline.report.events import Detail, Event
from fineline.tracing.symbols import Carried


def keep(
    region: CapturingRegion, entry_point: EntryPoint, shape: CallShape, writer: ResidualWriter, declared: bool | None, skipped: bool
) -> None:
    """Compiles a captured segment and adds its program. A graph of too few operators runs eagerly, unless a rule declares a break at it.

    ``declared``: whether a rule asked for the graph break that ends the segment; None if it ends with the call. ``skipped``: whether capture
    skips the code that runs at it.
    """
    recording = region.watch.recording
    if recording is None:
        _keep(region, entry_point, shape, writer, declared, skipped)
    else:
        with recording.making_program():
            _keep(region, entry_point, shape, writer, declared, skipped)


def _keep(
    region: CapturingRegion, entry_point: EntryPoint, shape: CallShape, writer: ResidualWriter, declared: bool | None, skipped: bool
) -> None:
    recorder = writer.trace.recorder
    # Beside calls, the thread compiles nothing itself.
    concurrent = writer.trace if is_a(writer.trace, ConcurrentTrace) else None
    if region.ranks is not None and region.ranks.is_open:
        # Before the backend compiles, which may take longer on one rank than on another.
        ending = "the segment ends at a graph break" if declared is not None else "the segment ends with the call"
        region.ranks.compare(recorder.graph, region.reports.events, ending)
    n, places, least = recorder.calls, recorder.places, region.graphs.min_operators
    few = n < least and not (declared or entry_point.declared)
    small = n > 0 and (recorder.traits.only_state or few)
    kind = "eager" if small else "captured"
    compile_graph: Callable[..., Callable | GraphJob] = _as_it_is if small else functools.partial(region.graphs.compile, queues=concurrent is not None)
    tally = region.watch.tally
    if tally is not None:
        captured = tally.close(kind)
        carried = sum([type(src) is Carried and type(src.value) is torch.SymFloat for _, src in recorder.inputs])
        compile_graph = tally.watch(kind, compile_graph, small or region.backend.name == "eager", captured, carried)
    recording = region.watch.recording
    # The writer forgets these values.
    roots = tuple([src.value for src in writer.trace.guards.roots()])
    if recording is not None:
        compile_graph = recording.timed(compile_graph)
    compiling = (compile_graph, entry_point.again(shape.kwnames), not small)
    # What makes the examples is not the user's.
    segment = writer.compile(*compiling) if tally is None else tally.during("", writer.compile, *compiling)
    if concurrent is not None:
        concurrent.state.check()
    if segment.graph is not None:
        at = next((p for p in places if p[0]), None) or place_of(region.fn)
        detail: Detail = {"ops": n, "places": places}
        if small:
            where = "after a graph break" if declared is None else "between two graph breaks"
            reason = f"{n} operator{'' if n == 1 else 's'} {where}: "
            reason += f"min_graph_operators is {least}" if few else "they only change PyTorch's state"
            region.reports.note(Event("eager", "FL404", reason, *at, detail=detail))
        else:
            region.reports.note(Event("graph", "FL001", f"{n} operator{'' if n == 1 else 's'}", *at, detail=detail))
        if writer.uncompiled and not small and region.backend.name != "eager":
            region.reports.note(Event("eager", "FL435", writer.uncompiled, *at))
    for event in writer.trace.mutations.hooks.eager_events:
        region.reports.note(event)
    entry_point.add(shape, segment, "skipped" if skipped else "eager")
    measures = measure(recording, segment, roots, region.options.evaluator) if recording is not None else None
    detail = {"program": functools.partial(describe_program, segment, measures)}
    region.reports.tell(Event("program", "FL002", f"program {region.budget.programs}", *place_of(region.fn), detail=detail))
    region.count_program(entry_point)
    region.graphs.background.begin()
    if segment.unbound.waits:
        # In this call, which has captured and is long: the next one is as fast as eager code. The first check of guards notes versions of dicts.
        segment.run.make()
        entry_point.dispatcher.entries[0][2].check(roots)


def _as_it_is(gm: GraphModule, examples: list, kinds: object) -> Callable:
    return as_it_is(gm)
