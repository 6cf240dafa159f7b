"""torch.compiler.nested_compile_region: each call of the function runs a sub-graph, which equal calls share.

If no sub-graph can hold the function's code, the call is interpreted like that of any other function.
"""

from __future__ import annotations

import dataclasses
import types
from collections import OrderedDict
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.frames.frame import Frame, covered, handled
from fineline.frames.graph_breaks import NotCapturable
from fineline.fx.body_recorder import BodyRecorder
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.introspection import load_cell
from fineline.symbolic.arithmetic import SYMBOLIC, unknown
from fineline.tensor_ops.subgraphs.allow_in_graph import tensors
from fineline.tensor_ops.subgraphs.capture import SubGraph, capture_subgraph, may_stand
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.subgraph_rules import REGION

_LATER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


def call_nested(call: Call) -> Frame | None:
    """Calls a function under ``nested_compile_region``: all equal calls share one sub-graph."""
    interp = call.interp
    interp.see_function(call.trace, call.fn)
    plain = load_cell(interp, _cell(call.fn))
    ruled = interp.rules is not None and interp.rules.decide(plain, call.args) is not None
    # If wrappers are nested, the innermost one makes the sub-graph.
    simple = is_a(plain, types.FunctionType) and not plain.__code__.co_flags & _LATER and not is_nested(plain)
    if ruled or not simple or not _fits_here(interp):
        return call.instead(plain, call.args, call.kwargs)
    found = capture_subgraph(interp, plain, call.args, REGION, kwargs=call.kwargs)
    if is_a(found, NotCapturable):
        return call.instead(plain, call.args, call.kwargs)
    outputs = _outputs(interp, found)
    if outputs is None:
        found.undo()
        return call.instead(plain, call.args, call.kwargs)
    _invoke(interp, found, outputs)
    return call.finish(found.value)


def is_nested(fn: types.FunctionType) -> bool:
    """Returns whether ``fn`` is a wrapper made by ``nested_compile_region``, fineline's or PyTorch's."""
    # Asks its code, because functools.wraps copies a mark in its dict to the user's wrappers.
    return _WRAPPERS.get(fn.__code__.co_qualname) in fn.__code__.co_freevars


# By the qualified name of a wrapper's code: the closure variable that holds the wrapped function.
_WRAPPERS: Mapping[str, str] = MappingProxyType(
    {"nested_compile_region.<locals>.nested": "fn", "mark_compile_region.<locals>.wrap.<locals>.inner": "func"}
)


def _cell(fn: types.FunctionType) -> types.CellType:
    assert fn.__closure__ is not None
    return fn.__closure__[fn.__code__.co_freevars.index(_WRAPPERS[fn.__code__.co_qualname])]


def _fits_here(interp: Interp) -> bool:
    """Returns whether a nested region may become a sub-graph where the interpreter is."""
    if not interp.trace.active or interp.nested.any() or interp.nested.index_modes or interp.nested.modes or not may_stand(interp, REGION):
        return False
    # The handlers in the user's code must see the errors of its operators.
    return not handled(interp.frame)


def _invoke(interp: Interp, found: SubGraph, outputs: list[Tensor]) -> None:
    """Adds the node that runs the sub-graph, and passes the sub-graph's facts on to the trace."""
    trace, recorder = interp.trace, found.recorder
    numbers = [(n, trace.to_fx(n)) for _, n in recorder.numbers.values()]
    recorder.invoke(torch.ops.higher_order.invoke_subgraph, outputs, numbers)
    trace.made.update(found.inner.made)
    trace.failures.caught = trace.failures.caught or covered(interp.frame)
    interp.note_subgraph(found.inner)
    interp.note_operator(0)


def _outputs(interp: Interp, found: SubGraph) -> list[Tensor] | None:
    """Returns the outputs of the sub-graph: the tensors in its result that it made; None if no sub-graph can hold the code.

    Refuses results that share memory, and objects that may contain tensors which `tensors` does not find.
    """
    recorder: BodyRecorder = found.recorder
    if not recorder.calls or not _shows_all(interp.trace, found.value):
        return None
    made = list(IdentitySet([t for t in tensors(found.value) if recorder.made(t)]))
    operands = recorder.operands
    if not made or not all([type(t) in PLAIN_TENSORS for t in made]) or not all([type(n) is torch.SymInt for _, n in recorder.numbers.values()]):
        return None
    if not all([t.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(t) for t in (*operands, *made)]):
        return None
    inside = [t.untyped_storage()._cdata for t in made]
    around = {t.untyped_storage()._cdata for t in operands}
    return made if len(set(inside)) == len(inside) and around.isdisjoint(inside) else None


def _shows_all(trace: SegmentTrace, value: Any) -> bool:
    """Returns whether `tensors` finds all tensors that are reachable from ``value``, except those that existed before."""
    t = type(value)
    if is_a(value, Tensor) or is_value(value):
        return True
    if t in SYMBOLIC:
        return not unknown(value)
    if value in trace.sources:
        return True
    if t is dict or t is OrderedDict:
        return all([_shows_all(trace, x) for item in value.items() for x in item])
    if t is list or (is_a(value, tuple) and not getattr(value, "__dict__", None)):
        return all([_shows_all(trace, x) for x in value])
    if t is slice:
        return all([_shows_all(trace, x) for x in (value.start, value.stop, value.step)])
    if not dataclasses.is_dataclass(value) or is_a(value, type) or t.__bases__ != (object,):
        return False
    fields = [field.name for field in dataclasses.fields(value)]
    return set(vars(value)) <= set(fields) and all([_shows_all(trace, getattr(value, name)) for name in fields])
