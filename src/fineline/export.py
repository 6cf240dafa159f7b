"""``export``: a graph that stands alone, and the bridge to PyTorch's exported programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import nn
from torch.fx import GraphModule

from fineline.api import original
from fineline.backends.registry import lookup_backend
from fineline.errors import BadArgument, Constrained, Forbidden, NotExported, Unsupported
from fineline.policy.shapes import marked_shapes
from fineline.program.exported import ExportWriter
from fineline.program.signature import parameters_of
from fineline.region.compiled import Compiled
from fineline.region.describe import Guard, guard_at, guards_of, place_of
from fineline.region.module import OptimizedModule
from fineline.region.options import Options
from fineline.region.region import Region

TracingMode = Literal["real", "fake", "symbolic"]


class Exported(NamedTuple):
    """What `export` gives: the graph, and what must hold of the world for it to be the function."""

    graph_module: GraphModule
    guards: tuple[Guard, ...]


def export(
    f: Callable,
    *args: Any,
    aten_graph: bool = False,
    decomposition_table: Mapping[Any, Callable] | None = None,
    tracing_mode: TracingMode = "real",
    constraints: Any = None,
    **kwargs: Any,
) -> Exported:
    """The graph of one call ``f(*args, **kwargs)``, as a module with ``f``'s parameters and results; nothing else comes of the call.

    ``f`` is a function, a method or an ``nn.Module``, whose parameters and buffers keep their names. ``aten_graph``: the graph has ATen
    operators, after ``decomposition_table``. ``tracing_mode``: "real", the call runs on its tensors and is undone; "fake", no number is
    computed; "symbolic", sizes and ints of the arguments vary as well. Sizes marked by `mark_dynamic` vary in each mode.

    Raises `NotExported`, which is an AssertionError, where the graph would break, or can't do all that the call does.
    """
    if constraints is not None:
        raise BadArgument(f"constraints={constraints!r:.80}", id="FL607")
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise BadArgument(f'tracing_mode is "real", "fake" or "symbolic", not {tracing_mode!r}')
    if not aten_graph and (decomposition_table is not None or tracing_mode != "real"):
        named = "decomposition_table" if decomposition_table is not None else f"tracing_mode={tracing_mode!r}"
        raise NotExported(f"{named} without aten_graph=True", id="FL602")
    return exported(f, args, kwargs, aten_graph, decomposition_table, tracing_mode)


def exported_program(
    f: Callable, args: tuple = (), kwargs: Mapping[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = False
) -> torch.export.ExportedProgram:
    """What fineline captures of ``f(*args, **kwargs)``, as a program for ``torch.export.save`` and AOTInductor.

    ``dynamic_shapes`` as for ``torch.export.export``: the sizes that vary, by parameter. Raises what `export` raises, and what
    ``torch.export.export`` raises.
    """
    kwargs = dict(kwargs or {})
    with marked_shapes(dynamic_shapes, args, kwargs):
        gm, _ = exported(f, args, kwargs)
    return torch.export.export(gm, args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)


def exported(
    f: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    aten: bool = False,
    table: Mapping[Any, Callable] | None = None,
    mode: TracingMode = "real",
    dynamic: bool | None = None,
) -> Exported:
    """... of arguments that are known to be good."""
    if not callable(f) or isinstance(f, type):
        raise BadArgument(f"{f!r:.80} is nothing that can be exported", id="FL201")
    fn = original(f) if isinstance(f, (OptimizedModule, Compiled)) else f
    dynamic = True if mode == "symbolic" else dynamic
    region = Region(fn, lookup_backend("eager", None, None), Options(breaks="none", dynamic=dynamic, first_call="live" if mode == "real" else "compiled"))
    holder = getattr(fn, "__self__", fn)
    parameters = parameters_of(fn, args, kwargs)
    written: list[ExportWriter] = []

    def writer(cap: Any, name: str) -> ExportWriter:
        written.append(ExportWriter(cap, name, parameters, holder if isinstance(holder, nn.Module) else None, aten, table))
        return written[-1]

    region.writer = writer
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
        step = e.next_step.partition(" Or take fullgraph=True away")[0]
        raise NotExported(e.reason, id=e.id, where=e.where, rule=e.rule, next_step=step) from e
    return Exported(gm, guards_of(segment))
