"""The outermost frame of a capture: a call of the region's callable with the arguments as they came."""

from __future__ import annotations

import enum
import inspect
import types
from typing import Any

import torch

from fineline.bytecode.code import CODES
from fineline.frames.frame import NULL, Frame
from fineline.guards.source import Source
from fineline.kinds import is_a, is_users_class
from fineline.tracing.identity_guards import has_hidden_state
from fineline.tracing.interp import Interp
from fineline.tracing.recreated_classes import CLASS_MRO
from fineline.tracing.segment_trace import SegmentTrace


def _call(fn, args, kwargs):  # type: ignore[no-untyped-def]
    return fn(*args, **kwargs)


def entry_frame(interp: Interp, fn: Any, args: tuple, kwargs: dict) -> Frame:
    """Returns a frame that is about to call ``fn(*args, **kwargs)``; arguments that the function never reads get no guard."""
    trace = interp.trace
    register_callable(trace, fn)
    unread = unread_parameters(fn, len(args), tuple(kwargs))
    names = parameter_names(fn, len(args))
    positional = []
    for i, v in enumerate(args):
        src = trace.guards.root(i, names[i], v)
        positional.append(trace.read(v, src) if i not in unread else _unread(trace, v, src))
    kw = {}
    for j, (name, v) in enumerate(kwargs.items()):
        src = trace.guards.root(len(args) + j, name, v)
        kw[name] = trace.read(v, src) if name not in unread else _unread(trace, v, src)
    code = _call.__code__
    info = CODES[code]
    trace.made.add(kw)
    local = [fn, tuple(positional), kw]
    local += [NULL] * (info.nslots - len(local))
    function: Any = _call
    return Frame(info, interp.link(info), function.__globals__, function.__builtins__, local, None)


def instance_of(fn: Any) -> Any:
    """Returns the object in whose place an equal one may be, with the same programs: an instance of a class, or a function; None if there is none."""
    v = fn.__self__ if is_a(fn, types.MethodType) else fn
    return v if is_a(v, types.FunctionType) or _shows_all(v) else None


def _shows_all(v: Any) -> bool:
    """Returns whether guards can compare ``v`` with another object of its class: all classes on its MRO are written in Python."""
    alone = is_a(v, (type, torch.Tensor, enum.Enum)) or has_hidden_state(v)
    return not alone and all([is_users_class(cls) for cls in CLASS_MRO.__get__(type(v))[:-1]])


def register_callable(trace: SegmentTrace, fn: Any) -> None:
    """Makes a region's callable known to a trace: a constant, but for the instance in it."""
    instance, name = instance_of(fn), getattr(fn, "__name__", type(fn).__name__)
    if is_a(fn, types.MethodType):
        trace.pin(fn.__func__, fn.__func__.__qualname__)
        trace.fresh(fn)
        name = "self"
        if instance is None:
            trace.pin(fn.__self__, name)
    elif instance is None:
        trace.pin(fn, name)
    if instance is not None:
        trace.instance(instance, name)


def _unread(trace: SegmentTrace, v: Any, src: Source) -> Any:
    """Returns a value that is only passed on. An object with an identity is loaded, because the call may return it."""
    if v not in trace.sources and not is_a(v, (int, float, str, bytes, type(None))):
        trace.load(v, src)
    return v


def unread_parameters(fn: Any, nargs: int, kwnames: tuple[str, ...]) -> frozenset:
    """Returns the positions and names of arguments whose parameter no instruction reads."""
    bound = 1 if is_a(fn, types.MethodType) else 0
    func = fn.__func__ if bound else fn
    if not is_a(func, types.FunctionType) or func.__dict__:
        return frozenset()
    code = func.__code__
    info = CODES[code]
    if any(i.name == "LOAD_GLOBAL" and info.names[i.arg >> 1] in ("locals", "vars", "eval", "exec") for i in info.instructions):
        return frozenset()
    out: set[Any] = set()
    for i in range(nargs):
        slot = i + bound
        if slot < code.co_argcount and not info.reads_slot(slot):
            out.add(i)
    for name in kwnames:
        if name in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] and not info.reads_slot(code.co_varnames.index(name)):
            out.add(name)
    return frozenset(out)


def parameter_names(fn: Any, nargs: int) -> list[str]:
    target = getattr(fn, "forward", fn)
    names: list[str] = []
    try:
        for p in inspect.signature(target).parameters.values():
            if p.kind is p.VAR_POSITIONAL:
                names += [f"{p.name}{i}" for i in range(nargs - len(names))]
            elif p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD):
                names.append(p.name)
    except (TypeError, ValueError):
        pass
    return (names + [f"arg{i}" for i in range(len(names), nargs)])[:nargs]
