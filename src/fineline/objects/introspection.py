"""Introspection by code: frames, names, exceptions and signatures."""

from __future__ import annotations

import builtins
import inspect
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from fineline.cpython import protocols
from fineline.errors import Unsupported
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import CaptureAborted, GraphBreak
from fineline.frames.stub_frames import frame_behind, is_own, is_stand_in, user_stack
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.objects.attribute_reads import load_attr
from fineline.objects.c_argument_errors import refused
from fineline.tracing.identity_guards import shown_by
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import HEAP_TYPE, is_value
from fineline.tracing.tracebacks import traceback_of

REFERENT = weakref.ref.__call__


def load_cell(interp: Interp, cell: types.CellType) -> Any:
    """Returns the contents of a cell, guarded if the cell existed before."""
    value = cell.cell_contents
    trace = interp.trace
    src = trace.sources.get(id(cell))
    if src is not None and not trace.mutations.wrote(cell):
        # Under its variable's name what changes is found again in later calls.
        return trace.read(value, trace.guards.access(src, "cell", src.variable(), value))
    return value


def _locals(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return interp.finish(f, _namespace(interp, f), then, data)


def _users(f: Frame) -> Frame:
    """Returns the frame that a C function sees as its caller, also if `map` or the like calls it."""
    while is_own(f.info.code) and f.back is not None:
        f = f.back
    return f


def _namespace(interp: Interp, f: Frame) -> Any:
    """Returns a frame's names. A function has one dict for them, brought up to date at each look; what else has been written there stays."""
    f = _users(f)
    trace, code = interp.trace, f.info.code
    if f.namespace is None:
        f.namespace = trace.fresh({})
    out = f.namespace
    src = trace.sources.get(id(out))
    if src is not None and trace.active:
        trace.expand(out)
        trace.mutations.note(out, src)
    for name, value in zip(f.info.slots, f.local, strict=True):
        if type(value) is types.CellType and (name in code.co_cellvars or name in code.co_freevars):
            try:
                value = load_cell(interp, value)
            except ValueError:
                value = NULL
        if value is not NULL:
            out[name] = value
        else:
            out.pop(name, None)
    return out


def _look_at(interp: Interp, f: Frame | None) -> None:
    """Makes programs keep all variables of the running functions from the next capture on."""
    while f is not None:
        interp.lessons.inspected_functions.add(f.info.code)
        f = f.back
    interp.fail("FL439", "variables are looked at through a frame", False)


def _get_frame(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles sys._getframe(): if the code reads ``f_locals``, programs must keep variables that no instruction reads any more."""
    codes, frame = [f.info.code], f.back
    while frame is not None:
        codes.append(frame.info.code)
        frame = frame.back
    if interp.trace.active and any(["f_locals" in code.co_names for code in codes]) and not interp.lessons.inspected_functions.issuperset(codes):
        _look_at(interp, f)
    return c_calls.call(interp, f, fn, fn, args, kwargs, then, data)


def _of_frame(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Delivers the line or the variables of a frame: for a stand-in frame, those of the interpreter's frame."""
    trace, (frame, name) = interp.trace, args
    found = frame_behind(frame, f)
    if found is not None and name == "f_lineno":
        return interp.finish(f, found.line, then, data)
    if name == "f_locals" and is_stand_in(frame.f_code):
        if found is None or not found.whole:
            _look_at(interp, f)
            text = f"the variables of {frame.f_code.co_qualname} are looked at, and only those still needed are left; the next call has them all"
            interp.abandoned = Unsupported(text, id="FL439", where=f"{f.file}:{f.line}", stack=user_stack(f))
            raise CaptureAborted
        if found.info.code not in interp.lessons.inspected_functions:
            _look_at(interp, f)
        return interp.finish(f, _namespace(interp, found), then, data)
    if trace.active and id(frame) in trace.sources:
        raise GraphBreak(getattr, (frame, name), None, "FL431", f"reading .{name} of a frame that existed before the call").to(then, data)
    return interp.finish(f, getattr(frame, name), then, data)


def _evaluate(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles eval() and exec(), which look up names in the frame that calls them."""
    if len(args) < 2 or args[1] is None:
        names = args[2] if len(args) > 2 and args[2] is not None else _namespace(interp, f)
        args = [*args[:1], _users(f).globals, names]
        if interp.trace.active:
            interp.trace.pin(args[1], "globals()")
    if not interp.trace.active:
        return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)
    raise GraphBreak(fn, tuple(args), kwargs, "FL411", f"{fn.__name__}() runs code that is not there yet").to(then, data)


def _dir(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not args:
        names = _namespace(interp, f)
        if interp.trace.active:
            interp.trace.expand(names)
        return interp.finish(f, interp.trace.fresh(sorted(names)), then, data)
    if not interp.trace.active:
        return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)
    raise GraphBreak(fn, tuple(args), kwargs, "FL411", "dir() can't be captured").to(then, data)


def _globals(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    names = _users(f).globals
    if interp.trace.active:
        interp.trace.pin(names, "globals()")
    return interp.finish(f, names, then, data)


def _vars(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not args:
        return _locals(interp, f, fn, args, kwargs, then, data)
    t = type(args[0])
    if not is_a(args[0], (type, types.ModuleType)) and not t.__dictoffset__ and not (t.__flags__ & HEAP_TYPE):
        return refused(interp, f, fn, args, kwargs, then, data)
    return load_attr(interp, f, args[0], "__dict__", then, data)


def _exc_info(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    e = interp.handled
    if e is None:
        return interp.finish(f, interp.native(sys.exc_info, (), None), then, data)
    return interp.finish(f, (type(e), e, traceback_of(e, interp.trace)), then, data)


def _exception(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return interp.finish(f, interp.handled if interp.handled is not None else interp.native(sys.exception, (), None), then, data)


def _call_weakref(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``ref()``: guards that it is the same object, which the program references weakly."""
    trace = interp.trace
    ref = args[0]
    # Not ref(): a subclass, such as WeakMethod, may answer another thing.
    obj = REFERENT(ref)
    src = trace.sources.get(id(ref))
    if src is None and trace.active and id(ref) in trace.made:
        # Whether the object still lives then is for that call to say.
        raise GraphBreak(REFERENT, (ref,), None, "FL410", "a weak reference made here").to(then, data)
    if src is not None and trace.active:
        trace.guards.check(src, "predicate", (partial(_same_target, ref if obj is not None else None), "refers to the same object"), "target")
        if obj is not None and id(obj) not in trace.sources and id(obj) not in trace.made:
            raise GraphBreak(REFERENT, (ref,), None, "FL410", "a weak reference to an object that is reached in no other way").to(then, data)
    return interp.finish(f, obj, then, data)


def _refer(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``weakref.ref`` of an object from outside without another weak reference, which would be the same object."""
    trace = interp.trace
    plain = len(args) == 1 and not kwargs and id(args[0]) in trace.sources and type(args[0]).__weakrefoffset__ > 0
    if trace.active and plain and (is_a(args[0], dict) or c_calls.hashable(args[0])):
        known = [ref for ref in weakref.getweakrefs(args[0]) if type(ref) is weakref.ref and ref.__callback__ is None]
        if not known or id(known[0]) in trace.made:
            return interp.finish(f, trace.fresh(weakref.ref(args[0])), then, data)
    return c_calls.call(interp, f, fn, fn, args, kwargs, then, data)


def _same_target(ref: Any, other: Any) -> bool:
    return REFERENT(other) is (None if ref is None else REFERENT(ref))


def _signature(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``inspect.signature`` of a function: it follows from the code and the defaults, which are guarded."""
    trace = interp.trace
    target = args[0].__func__ if is_a(args[0], types.MethodType) else args[0]
    if not trace.active or not is_a(target, types.FunctionType) or len(args) > 1 or kwargs:
        if trace.active:
            raise GraphBreak(fn, tuple(args), kwargs, "FL410", f"inspect.signature of a {type(target).__name__}").to(then, data)
        return interp.finish(f, interp.native(fn, tuple(args), kwargs), then, data)
    wrapped: Any = target
    while is_a(wrapped, types.FunctionType):
        interp.see_function(trace, wrapped)
        d = wrapped.__dict__
        src = trace.dict_source(wrapped, d)
        for name in ("__signature__", "__wrapped__"):
            if name in d:
                trace.read_key(d, src, name, d[name])
            else:
                trace.read_absent(d, src, name)
        wrapped = d.get("__wrapped__")
    result = fn(*args)
    # The parameters' dict is reached through what shows it alone.
    trace.made.update(map(id, (result, result.parameters, shown_by.__get__(result.parameters, MappingProxyType), *result.parameters.values())))
    trace.kept.append(result)
    return interp.finish(f, result, then, data)


_STATES: Mapping[str, str] = MappingProxyType(
    {"new": inspect.GEN_CREATED, "suspended": inspect.GEN_SUSPENDED, "running": inspect.GEN_RUNNING, "closed": inspect.GEN_CLOSED}
)


def _generator_state(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 1 and type(args[0]) is InterpretedGenerator:
        return interp.finish(f, _STATES[args[0].state], then, data)
    return interp.push_function(f, fn, args, kwargs, then, data)


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        builtins.dir: _dir,
        protocols.of_frame: _of_frame,
        sys._getframe: _get_frame,
        builtins.eval: _evaluate,
        builtins.exec: _evaluate,
        builtins.locals: _locals,
        builtins.globals: _globals,
        builtins.vars: _vars,
        sys.exc_info: _exc_info,
        sys.exception: _exception,
        inspect.getgeneratorstate: _generator_state,
        inspect.signature: _signature,
        REFERENT: _call_weakref,
        weakref.ref: _refer,
    }
)


def global_value(interp: Interp, f: Frame, name: str) -> Any:
    """Returns a global or builtin by name, guarded."""
    trace = interp.trace
    g = f.globals
    if not trace.active:
        if name in g:
            return g[name]
        if name in f.builtins:
            return f.builtins[name]
        raise NameError(f"name '{name}' is not defined", name=name)
    cache = trace.global_values.get(id(g))
    if cache is None:
        cache = trace.global_values[id(g)] = {}
    if name in cache:
        return cache[name]
    src = trace.sources.get(id(g))
    if is_own(f.info.code):
        # What stands for C code asks nothing that anybody could change.
        value = g[name] if name in g else f.builtins[name]
        if not is_value(value):
            trace.pin(value, name)
        cache[name] = value
        return value
    if src is None:
        src = trace.pin(g, f"globals of {g.get('__name__')}")
    if name in g:
        value = trace.read_key(g, src, name, g[name])
    else:
        trace.read_absent(g, src, name)
        if name not in f.builtins:
            raise NameError(f"name '{name}' is not defined", name=name)
        b = trace.pin(f.builtins, "builtins")
        value = trace.read_key(f.builtins, b, name, f.builtins[name])
    cache[name] = value
    return value
