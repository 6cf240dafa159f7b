"""``export`` makes a standalone graph of a call; `exported_program` converts it to one of PyTorch's exported programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch
from torch import nn
from torch._ops import OperatorBase
from torch.fx import GraphModule

from fineline.api import original
from fineline.errors import BadArgument, NotExported
from fineline.import_thread import LateModule
from fineline.policy.shape_api import marked_shapes
from fineline.region.compiled import Compiled
from fineline.region.optimized_module import OptimizedModule
from fineline.region.options import Options
from fineline.torch_facts.thread_state import KERNELS

if TYPE_CHECKING:
    from fineline.export import capture
    from fineline.report.programs import Guard
else:
    capture = LateModule("fineline.export.capture")

TracingMode = Literal["real", "fake", "symbolic"]


class Exported(NamedTuple):
    """The result of `export`: the graph, and the guards under which it computes the same as the function."""

    graph_module: GraphModule
    guards: tuple[Guard, ...]


def export(
    f: Callable,
    *args: object,
    aten_graph: bool = False,
    decomposition_table: Mapping[OperatorBase, Callable] | None = None,
    tracing_mode: TracingMode = "real",
    constraints: object = None,
    pre_dispatch: bool = False,
    **kwargs: object,
) -> Exported:
    """Returns the graph of one call ``f(*args, **kwargs)``, as a module with ``f``'s parameters and results; the call has no other effect.

    ``f`` is a function, a method or an ``nn.Module``, whose parameters and buffers keep their names. ``aten_graph``: the graph has
    ATen operators, decomposed by ``decomposition_table``; ``pre_dispatch``: as they are before autograd decomposes them.
    ``tracing_mode``: "real" runs the call on its tensors and undoes it; "fake" computes no numbers; "symbolic" also lets sizes
    and ints of the arguments vary. Sizes marked by `mark_dynamic` vary in each mode.

    Raises `NotExported`, an AssertionError, if the graph would break, or cannot do all that the call does.
    """
    return export_call(f, args, kwargs, tracing_mode, None, aten_graph, decomposition_table, constraints, pre_dispatch)


def exported_program(
    f: Callable, args: tuple = (), kwargs: Mapping[str, object] | None = None, *, dynamic_shapes: dict | tuple | list | None = None, strict: bool = False
) -> torch.export.ExportedProgram:
    """Returns the captured graph of ``f(*args, **kwargs)`` as a program for ``torch.export.save`` and AOTInductor.

    ``dynamic_shapes`` is that of ``torch.export.export``: the sizes that vary, by parameter. Raises the errors of `export` and
    of ``torch.export.export``.
    """
    kwargs = dict(kwargs or {})
    with marked_shapes(dynamic_shapes, args, kwargs):
        gm, _ = export_call(f, args, kwargs)
    if any([node.target in KERNELS for part in gm.modules() if isinstance(part, GraphModule) for node in part.graph.nodes]):
        step = "Take the block out of the call, and put it around the calls of the exported program."
        raise NotExported("torch.export would lose which kernels of attention may be chosen", id="FL606", next_step=step)
    return torch.export.export(_module(gm), args, kwargs, dynamic_shapes=dynamic_shapes, strict=strict)


def _module(gm: GraphModule) -> nn.Module:
    """Returns a plain module that works like ``gm``: torch.export would run a graph module's nodes and lose the parameters' names."""
    cls = type(type(gm).__name__, (nn.Module,), {"forward": type(gm).forward})
    module: nn.Module = cls()
    module.__dict__.update({name: value for name, value in gm.__dict__.items() if not name.startswith("_graph")})
    return module


def export_call(
    f: Callable,
    args: tuple,
    kwargs: dict[str, object],
    tracing_mode: TracingMode = "real",
    dynamic: bool | None = None,
    aten_graph: bool = False,
    decomposition_table: Mapping[OperatorBase, Callable] | None = None,
    constraints: object = None,
    pre_dispatch: bool = False,
) -> Exported:
    """Exports one call; its arguments are separate from the options. ``dynamic``: sizes and ints vary if the call allows it."""
    if constraints is not None:
        raise BadArgument(f"constraints={constraints!r:.80}", id="FL607")
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise BadArgument(f'tracing_mode is "real", "fake" or "symbolic", not {tracing_mode!r}')
    if not aten_graph and (decomposition_table is not None or tracing_mode != "real" or pre_dispatch):
        mode = f"tracing_mode={tracing_mode!r}" if tracing_mode != "real" else "pre_dispatch=True"
        named = "decomposition_table" if decomposition_table is not None else mode
        raise NotExported(f"{named} without aten_graph=True", id="FL602")
    if not callable(f) or isinstance(f, type):
        raise BadArgument(f"{f!r:.80} is nothing that can be exported", id="FL201")
    fn = original(f) if isinstance(f, (OptimizedModule, Compiled)) else f
    varying = True if tracing_mode == "symbolic" else dynamic
    options = Options(breaks="none", exported=True, dynamic=varying, first_call="live" if tracing_mode == "real" else "compiled")
    aten = (decomposition_table, pre_dispatch) if aten_graph else None
    try:
        return Exported(*capture.captured(fn, args, kwargs, options, aten))
    except NotExported:
        if not dynamic:
            raise
    return Exported(*capture.captured(fn, args, kwargs, replace(options, dynamic=None), aten))
