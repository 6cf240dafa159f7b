"""autograd.Function.apply: interpreted if no gradient is required; otherwise one node, which runs sub-graphs or, if these fail, the function."""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.autograd.function import FunctionMeta

from fineline.bytecode.code import global_names, names_in
from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak, NotCapturable, Restart
from fineline.fx.function_node import FunctionCall
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects.attribute_reads import type_info
from fineline.objects.introspection import load_cell
from fineline.policy.break_settings import breaks_here
from fineline.symbolic.arithmetic import settled
from fineline.tensor_ops.speculation import settle_first
from fineline.tensor_ops.subgraphs.function_graphs import (
    BEYOND_BACKWARD,
    FunctionGraphs,
    apply_by,
    capture_function,
    differentiated,
    needed,
    transformed,
)
from fineline.torch_facts.releases import applied, bound_apply
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import is_value


def apply_function(call: Call) -> Frame | None:
    """Handles ``autograd.Function.apply``: interprets the forward if no gradient is required; otherwise makes one node of the graph."""
    try:
        return _apply(call)
    except GraphBreak as graph_break:
        _capture_forward(call, graph_break)
        raise


def _apply(call: Call) -> Frame | None:
    interp, trace, kwargs = call.interp, call.trace, call.kwargs
    cls, rest = call.args[0], call.args[1:]
    if not trace.active:
        return call.finish(interp.native(bound_apply(cls), tuple(rest), kwargs))
    for name in ("forward", "setup_context", "backward", *BEYOND_BACKWARD):
        type_info(trace, cls).look(trace, name)
    forward, setup = cls.forward, cls.setup_context
    separate = setup is not torch.autograd.Function.setup_context
    if separate and is_a(forward, types.FunctionType):
        rest = _with_defaults(interp, forward, rest)
    wants = torch.is_grad_enabled() and any(needed(rest))
    if not wants and not transformed() and not differentiated(interp) and not kwargs and is_a(forward, types.FunctionType):
        ctx = InlineContext(needed(rest))
        trace.made.add(ctx)
        trace.kept.append(ctx)
        run = apply_by(interp) if torch.is_grad_enabled() else protocols.apply_plain
        return call.instead(run, [forward, setup if separate else None, ctx, tuple(rest)])
    graphs = capture_function(interp, cls, rest) if not kwargs else None
    if graphs is not None:
        result = _record(interp, cls, graphs)
        interp.note_call(f"{cls.__qualname__}.apply", cls.forward, "captured", 1)
        return call.finish(result)
    if differentiated(interp):
        raise NotCapturable
    if interp.nested.modes:
        raise GraphBreak(bound_apply(cls), tuple(rest), kwargs, "FL503", f"a function mode sees the operators of {cls.__qualname__}, and does more than compute")
    if not interp.backing.real:
        # The function's code would run now, and again in the program.
        text = f"{cls.__qualname__} may do more than compute"
        if interp.backing.is_symbolic and breaks_here(interp.options.breaks) == "any":
            # A restart on the real values would capture each size separately.
            raise GraphBreak(bound_apply(cls), tuple(rest), kwargs, "FL511", text)
        raise Restart("FL515", text)
    if not see_methods(interp, cls):
        raise GraphBreak(bound_apply(cls), tuple(rest), kwargs, "FL511", f"{cls.__qualname__} reads state that may change")
    settle_first(call)
    target = FunctionCall(cls)
    try:
        result = interp.tensors.operator(interp, target, rest, kwargs)
    except GraphBreak as graph_break:
        if graph_break.fn is target:
            # A program cannot make the target, which belongs to the node alone.
            graph_break.fn = bound_apply(cls)
        raise
    interp.note_call(f"{cls.__qualname__}.apply", cls.forward, "opaque", 1)
    return call.finish(result)


def _capture_forward(call: Call, graph_break: GraphBreak) -> None:
    """Makes the forward of a function a region of its own, if the graph break runs the function eagerly."""
    interp, trace, cls = call.interp, call.trace, call.args[0]
    fn, run = graph_break.fn, interp.run_frame
    if run is None or call.kwargs or interp.nested.modes or not (fn is call.fn or applied(fn) is cls) or not interp.may_break():
        return
    # A subclass of it must run no code of the user's.
    if type(cls) is FunctionMeta and cls not in trace.made and not any(["__init_subclass__" in vars(base) for base in cls.__mro__[:-1]]):
        graph_break.fn, graph_break.args_ = type(run).apply, (run, cls, *call.args[1:])
        trace.pin(graph_break.fn, cls.__qualname__)
        trace.pin(run, cls.__qualname__)


def _with_defaults(interp: Interp, forward: types.FunctionType, args: list) -> list:
    """Returns ``args`` with the defaults of missing arguments, because ``setup_context`` gets all arguments of the forward."""
    defaults, missing = forward.__defaults__ or (), forward.__code__.co_argcount - len(args)
    if not 0 < missing <= len(defaults) or not is_value(defaults):
        return args
    interp.see_function(interp.trace, forward)
    return [*args, *defaults[-missing:]]


def _record(interp: Interp, cls: Any, graphs: FunctionGraphs) -> Any:
    """Records one node whose arguments are the graphs; returns the results."""
    part, to_fx = interp.trace.recorder.part, interp.trace.to_fx
    forward, *backwards = [
        part(f"{cls.__name__}_{n}", graph) for n, graph in [("forward", graphs.forward), *[("backward", b) for b in graphs.backwards]]
    ]
    nodes = (forward, tuple(backwards), tuple([to_fx(n) for n in graphs.numbers]), *[to_fx(t) for t in graphs.given])
    return interp.tensors.keep(interp, graphs.target, "call_function", graphs.target, nodes, {}, graphs.apply(interp))


def see_methods(interp: Interp, cls: Any) -> bool:
    """Guards the methods of a class that a graph node will run.

    Returns False if they read something that may change without a failing guard, or that the captured code has changed: the program does so
    after the graph.
    """
    seen = IdentitySet()
    methods = (cls.forward, cls.setup_context, cls.backward, cls.vjp, cls.jvp, cls.vmap)
    closed = all([see_closed(interp, m, seen) for m in methods if is_a(m, types.FunctionType)])
    return closed and interp.trace.mutations.writes().isdisjoint([name for fn in seen for name in names_in(fn.__code__)])


class InlineContext:
    """The ``ctx`` of an autograd.Function whose backward will never run."""

    def __init__(self, needs: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs
        self.saved_tensors: tuple = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


def see_closed(interp: Interp, fn: types.FunctionType, seen: IdentitySet) -> bool:
    """Guards a function that a node will run, with all globals and cells that it can read; returns False if one is not a function or a constant."""
    trace = interp.trace
    if fn in seen:
        return True
    seen.add(fn)
    interp.see_function(trace, fn)
    values = []
    globals_ = fn.__globals__
    src = trace.pin(globals_, f"globals of {globals_.get('__name__')}")
    for name in global_names(fn.__code__):
        if name in globals_:
            values.append(trace.read_key(globals_, src, name, globals_[name]))
    for cell in fn.__closure__ or ():
        values.append(load_cell(interp, cell))
    # Specializes on symbolic numbers, because the node reads the variables themselves.
    for v in map(settled, values):
        if is_a(v, types.FunctionType):
            if not (v.__module__ or "").startswith("torch.") and not see_closed(interp, v, seen):
                return False
        elif not is_value(v):
            return False
    return True
