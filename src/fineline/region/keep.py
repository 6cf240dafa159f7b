"""What becomes of a captured segment: its graph is compiled, or too small for that, and its program serves the calls that it fits."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from fineline.backends.eager import as_it_is
from fineline.program.segment import SegmentWriter
from fineline.region.describe import describe_guards, place_of
from fineline.report.events import Event

# Below this a compiled graph gains little over its operators: entering and guarding one costs as much as a few of them.
SMALL_GRAPH = 32
# ... in a call that has shown to be cut often; the first pieces are compiled whatever their size.
FEW_BORDERS = 4


def keep(run: Any, writer: SegmentWriter, between: bool = False) -> None:
    """Compiles the segment of ``run``. ``between``: it stands between two borders that nobody asked for; then a few operators go eagerly."""
    region, site, recorder = run.region, run.site, writer.cap.recorder
    n, places = recorder.calls, recorder.places
    small = n > 0 and ((between and n < SMALL_GRAPH and run.borders > FEW_BORDERS) or recorder.only_state)
    compile_graph, kind = (_as_it_is, "eager") if small else (region.compile_graph, "captured")
    if region.tally is not None:
        region.tally.close(kind)
        compile_graph = region.tally.watch(kind, compile_graph)
    segment = writer.compile(compile_graph, site.again(run.kwnames), not small)
    if segment.graph is not None:
        at = next((p for p in places if p[0]), None) or place_of(region.fn)
        detail: dict[str, Any] = {"ops": n, "places": places}
        if small:
            reason = f"{n} operators between two graph breaks: too few for a graph of their own"
            region._note(Event("eager", "FL404", reason, *at, detail=detail))
        else:
            region._note(Event("graph", "FL001", f"{n} operator{'' if n == 1 else 's'}", *at, detail=detail))
        if writer.uncompiled and not small and region.backend.name != "eager":
            region._note(Event("eager", "FL435", writer.uncompiled, *at))
    detail = {"graph": segment.graph, "source": segment.source, "guards": functools.partial(describe_guards, segment)}
    region.tell(Event("program", "FL002", f"program {region.programs}", *place_of(region.fn), detail=detail))
    site.add(run.nargs, run.kwnames, segment)
    if site is region.entry or site.segments[1:]:
        region.programs += 1


def _as_it_is(gm: GraphModule, examples: list, kinds: Any) -> Callable:
    return as_it_is(gm)
