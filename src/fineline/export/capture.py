"""The capture of an exported call: a region of its own, whose one program is written as a graph and not as Python code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn
from torch._ops import OperatorBase
from torch.fx import GraphModule

from fineline.backends.registry import lookup_backend
from fineline.errors import Constrained, Forbidden, NotExported, Unsupported
from fineline.export.graph import Aten, ExportWriter
from fineline.export.signature import parameters_of
from fineline.region.descriptions import guard_at, guards_of, place_of
from fineline.region.options import Options
from fineline.region.region import Region
from fineline.report.programs import Guard
from fineline.tracing.segment_trace import SegmentTrace


def captured(
    fn: Callable, args: tuple, kwargs: dict[str, object], options: Options, aten: tuple[Mapping[OperatorBase, Callable] | None, bool] | None
) -> tuple[GraphModule, tuple[Guard, ...]]:
    """Returns the graph of one call, and its guards. ``aten``: the arguments of `Aten` for a graph of ATen operators."""
    holder = getattr(fn, "__self__", fn)
    parameters = parameters_of(fn, args, kwargs)
    written: list[ExportWriter] = []

    def writer(trace: SegmentTrace, name: str) -> ExportWriter:
        root = holder if isinstance(holder, nn.Module) else None
        written.append(ExportWriter(trace, name, parameters, root, Aten(*aten) if aten is not None else None))
        return written[-1]

    region = Region(fn, lookup_backend("eager", None, None), options, writer=writer)
    # Makes floats constants: the inputs of an exported graph are tensors and ints.
    region.entry.varying.keep_floats()
    try:
        region.once(args, kwargs)
        segment = written[-1].segment
        gm = written[-1].graph(lambda at: str(guard_at(segment, at)))
    except (Constrained, Forbidden):
        raise
    except NotExported as e:
        e.where = e.where or "{}:{}".format(*place_of(fn))
        raise
    except Unsupported as e:
        step = e.next_step.partition(" Or remove fullgraph=True")[0]
        raise NotExported(e.reason, id=e.id, where=e.where, rule=e.rule, next_step=step, stack=e.stack) from e
    return gm, guards_of(segment)
