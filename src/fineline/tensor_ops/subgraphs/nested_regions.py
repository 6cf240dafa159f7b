"""Captures a Python callable as a graph of its own, which one node of the graph around it runs.

`begin_subgraph` runs the callable's frame with a recorder of its own; tensors from around it, those in closures included, become inputs.
When the frame returns, ``finish`` says what becomes of the body. A graph break inside, or an exception that leaves it, ends the
sub-graph: its nodes go to the graph around it, as if there had been none.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.fx.subgraph_recorder import SubRecorder
from fineline.guards.facts import AMBIENT
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.introspection import load_cell
from fineline.tensor_ops.subgraphs.allow_in_graph import tensors
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import PLAIN_TENSORS

_LATER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Subgraph:
    """One that is being captured."""

    def __init__(self, recorder: SubRecorder, finish: Callable[[Any, Subgraph, Any], None], then: Delivery | None) -> None:
        self.recorder = recorder
        self.finish = finish
        self.then = then
        self.frame: Frame | None = None
        self.ambient = AMBIENT.now()

    def outputs(self, value: Any) -> list[Tensor] | None:
        """Returns what must come out of it: the tensors in its result that it made; None if no sub-graph can hold the body.

        Such are bodies that change PyTorch's state or their operands, or give what shares memory.
        """
        recorder = self.recorder
        made = list(IdentitySet([t for t in tensors(value) if recorder.made(t)]))
        if not recorder.calls or not made or AMBIENT.now() != self.ambient or not all([type(t) in PLAIN_TENSORS for t in made]):
            return None
        operands = recorder.operands
        if not all([t.layout is torch.strided and not torch._C._functorch.is_functorch_wrapped_tensor(t) for t in (*operands, *made)]):
            return None
        inside = [t.untyped_storage()._cdata for t in made]
        around = {t.untyped_storage()._cdata for t in operands}
        if len(set(inside)) < len(inside) or not around.isdisjoint([*inside, *recorder.writes.storages]):
            return None
        return made


def begin_subgraph(interp: Interp, f: Frame, fn: types.FunctionType, args: list, kwargs: dict | None, finish: Callable, then: Delivery | None) -> Frame | None:
    """Runs ``fn`` with a recorder of its own; ``finish(interp, subgraph, result)`` puts what it recorded into the recorder around it."""
    sub = Subgraph(SubRecorder(interp.trace.recorder), finish, then)
    frame = interp.push_function(f, fn, args, kwargs, Delivery(_end, then, sub))
    interp.trace.recorder = sub.recorder
    sub.frame = frame
    interp.nested.subgraphs.append(sub)
    return frame


def _end(interp: Interp, f: Frame, value: Any, then: Delivery | None, sub: Subgraph) -> Frame | None:
    assert sub.frame is not None and interp.nested.subgraphs[-1] is sub
    interp.nested.subgraphs.pop()
    interp.trace.recorder = sub.recorder.parent
    if interp.trace.active:
        sub.finish(interp, sub, value)
    return interp.finish(f, value, then)


# -- nested_compile_region -------------------------------------------------------------------------------------------------
def call_nested(call: Call) -> Frame | None:
    """Calls a function under ``nested_compile_region``: all equal calls share one sub-graph."""
    interp = call.interp
    interp.see_function(call.trace, call.fn)
    plain = load_cell(interp, _cell(call.fn))
    ruled = interp.rules is not None and interp.rules.decide(plain, call.args) is not None
    # Of wrappers in wrappers the innermost makes the sub-graph.
    simple = is_a(plain, types.FunctionType) and not plain.__code__.co_flags & _LATER and not is_nested(plain)
    if ruled or not simple or interp.nested.opaque is not None:
        return call.instead(plain, call.args, call.kwargs)
    return begin_subgraph(interp, call.frame, plain, call.args, call.kwargs, _invoke, call.then)


def is_nested(fn: types.FunctionType) -> bool:
    """Returns whether it is a wrapper of ``nested_compile_region``'s, fineline's or PyTorch's."""
    # By its code: a wrapper of the user's has a copy of what stands in its dict.
    return _WRAPPERS.get(fn.__code__.co_qualname) in fn.__code__.co_freevars


# The code of such wrappers, and what they call the function.
_WRAPPERS: Mapping[str, str] = MappingProxyType(
    {"nested_compile_region.<locals>.nested": "fn", "mark_compile_region.<locals>.wrap.<locals>.inner": "func"}
)


def _cell(fn: types.FunctionType) -> types.CellType:
    assert fn.__closure__ is not None
    return fn.__closure__[fn.__code__.co_freevars.index(_WRAPPERS[fn.__code__.co_qualname])]


def _invoke(interp: Interp, sub: Subgraph, value: Any) -> None:
    outputs = sub.outputs(value)
    if outputs is None:
        sub.recorder.inline()
    else:
        sub.recorder.hold(torch.ops.higher_order.invoke_subgraph, "subgraph", outputs)
