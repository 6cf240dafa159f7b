"""What becomes of a captured segment: its graph is compiled, or too small for that, and its program serves the calls that it fits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.fx import GraphModule
from torch.nn import Parameter

from fineline.backends.eager import as_it_is
from fineline.kinds import is_a
from fineline.program.segment import SegmentWriter, call_under_way
from fineline.region.describe import describe_guards, place_of
from fineline.report.events import Event

# Below this a compiled graph gains little over its operators: entering and guarding one costs as much as a few of them.
SMALL_GRAPH = 32
# ... in a call that has shown to be cut often; the first pieces are compiled whatever their size.
FEW_BORDERS = 4
# At most so many operators gain nothing at all between two borders, and behind the last one, where they work on little data.
TINY_GRAPH, LAST_GRAPH = 4, 2
LITTLE = 2**16


def keep(run: Any, writer: SegmentWriter, declared: bool | None = None) -> None:
    """Compiles the segment of ``run``, unless too few operators lie behind a border that nobody asked for; then these go eagerly.

    ``declared``: whether somebody asked for the border that the segment ends with; None if it ends with the call.
    """
    region, site, recorder = run.region, run.site, writer.cap.recorder
    n, places = recorder.calls, recorder.places
    asked = declared or site.declared
    small = n > 0 and (recorder.only_state or (not asked and _too_small(run, recorder, declared is None)))
    compile_graph, kind = (_as_it_is, "eager") if small else (region.compile_graph, "captured")
    if region.tally is not None:
        region.tally.close(kind)
        compile_graph = region.tally.watch(kind, compile_graph)
    segment = writer.compile(compile_graph, site.again(run.kwnames), not small)
    if segment.graph is not None:
        at = next((p for p in places if p[0]), None) or place_of(region.fn)
        detail: dict[str, Any] = {"ops": n, "places": places}
        if small:
            where = "behind a graph break" if declared is None else "between two graph breaks"
            reason = f"{n} operator{'' if n == 1 else 's'} {where}: too few for a graph of their own"
            region._note(Event("eager", "FL404", reason, *at, detail=detail))
        else:
            region._note(Event("graph", "FL001", f"{n} operator{'' if n == 1 else 's'}", *at, detail=detail))
        if writer.uncompiled and not small and region.backend.name != "eager":
            region._note(Event("eager", "FL435", writer.uncompiled, *at))
    detail = {"graph": segment.graph, "source": segment.source, "guards": functools.partial(describe_guards, segment)}
    region.tell(Event("program", "FL002", f"program {region.programs}", *place_of(region.fn), detail=detail))
    site.add(run.nargs, run.kwnames, segment)
    # Where ways through the code meet, their number says little of the region; and a call that is captured anew counts once,
    # behind however many graph breaks it is.
    call = call_under_way()
    if site is region.entry or (site.segments[1:] and not site.met and call is not region.counted):
        region.programs, region.counted = region.programs + 1, call


def _too_small(run: Any, recorder: Any, last: bool) -> bool:
    """Whether its operators are too few for a graph of their own, behind a border that nobody asked for; behind the ``last`` one, or before another."""
    if not last and run.borders > FEW_BORDERS:
        return bool(recorder.calls < SMALL_GRAPH)
    if recorder.calls > (LAST_GRAPH if last else TINY_GRAPH) or (last and run.borders == 1):
        # One graph break makes two graphs, as everybody expects.
        return False
    given = [src.value for _, src in recorder.inputs]
    return all([not is_a(t, Tensor) or is_a(t, Parameter) or t.numel() <= LITTLE for t in given])


def _as_it_is(gm: GraphModule, examples: list, kinds: Any) -> Callable:
    return as_it_is(gm)
