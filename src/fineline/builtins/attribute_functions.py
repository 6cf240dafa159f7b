"""getattr(), setattr() and their kin, as the interpreter answers them."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from fineline.cpython import protocols
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects.attribute_errors import read_attribute
from fineline.objects.attribute_reads import (
    ABSENT,
    MISSING,
    PROPERTY,
    PY_DATA,
    PY_OTHER,
    bound,
    generic_load,
    kind_of,
    load_attr,
    raw_lookup,
    type_info,
)
from fineline.objects.attribute_writes import delete_attr, generic_delete, generic_store, store_attr
from fineline.objects.c_argument_errors import refused
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Interp


def _getattr(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) not in (2, 3) or kwargs or not is_a(args[1], str):
        return interp.finish(f, getattr(*args, **(kwargs or {})), then, data)
    if not interp.trace.active:
        return interp.finish(f, getattr(*args), then, data)
    if len(args) == 2:
        return read_attribute(interp, f, args[0], args[1], then, data)
    obj, name, default = args
    if _simple(interp, obj, name):
        # The common case without a frame: nothing of the user's runs, so AttributeError comes from this very call.
        try:
            if is_a(obj, nn.Module):
                return generic_load(interp, f, obj, name, type_info(interp.trace, type(obj)), then, data, use_getattr=False)
            return load_attr(interp, f, obj, name, then, data)
        except AttributeError:
            return interp.finish(f, default, then, data)
    return interp.call(f, protocols.attribute_or, [builtins.getattr, obj, name, default], None, then, data)


def _simple(interp: Interp, obj: Any, name: str) -> bool:
    """Returns whether reading a missing attribute of ``obj`` runs no code that fails only later."""
    if is_a(obj, (type, types.ModuleType, super)):
        return is_a(obj, types.ModuleType) and type(obj) is types.ModuleType and "__getattr__" not in obj.__dict__
    info = type_info(interp.trace, type(obj))
    if not info.generic or (info.getattr_fn is not None and not info.is_module):
        return False
    return info.look(interp.trace, name)[0] not in (PROPERTY, PY_DATA, PY_OTHER)


def _hasattr(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, name = args
    if not interp.trace.active or not is_a(name, str):
        return interp.finish(f, hasattr(obj, name), then, data)
    if type(obj) in SYMBOLIC:
        # No attribute of a number depends on its value.
        return interp.finish(f, raw_lookup(interp.type_of(obj), name) is not MISSING, then, data)
    info = None if is_a(obj, (type, super)) else type_info(interp.trace, type(obj))
    if info is not None and info.generic:
        kind, _ = info.look(interp.trace, name)
        if kind >= 4:
            # A plain class attribute or a method: the instance's dict can only hide it, not take it away.
            return interp.finish(f, True, then, data)
        if kind == 0 and (info.getattr_fn is None or info.is_module) and not is_a(obj, types.ModuleType):
            try:
                return generic_load(interp, f, obj, name, info, _true_then, (then, data), use_getattr=False)
            except AttributeError:
                return interp.finish(f, False, then, data)
    return interp.call(f, protocols.has_attribute, [builtins.getattr, obj, name], None, then, data)


def _true_then(interp: Interp, f: Frame, value: Any, state: tuple) -> Frame | None:
    return interp.finish(f, True, *state)


def _writing(write: Callable, plain: Callable | None = None) -> Callable:
    """Returns the handler of a write as a function call, whose result is None; ``plain`` makes it where nothing is captured."""

    def handler(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
        if plain is not None and not interp.trace.active:
            return interp.finish(f, plain(*args), then, data)
        if not is_a(args[1], str):
            return refused(interp, f, fn, args, kwargs, then, data)
        try:
            frame = write(interp, f, *args)
        except GraphBreak as b:
            b.push = True
            raise b.to(then, data) from None
        if frame is None:
            return interp.finish(f, None, then, data)
        frame.then, frame.data = _give_none, (then, data)
        return frame

    return handler


def _give_none(interp: Interp, f: Frame, value: Any, state: tuple) -> Frame | None:
    return interp.finish(f, None, *state)


def _object_getattribute(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, name = args
    if not interp.trace.active:
        return interp.finish(f, object.__getattribute__(obj, name), then, data)
    return generic_load(interp, f, obj, name, type_info(interp.trace, type(obj)), then, data, use_getattr=False)


def _bind(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles ``function.__get__``: delivers a method, or the function itself; no Python code runs."""
    return interp.finish(f, fn(*args, **(kwargs or {})), then, data)


def _special(interp: Interp, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """Handles `protocols.special`: delivers a bound method found on the type, or MISSING; None if the class sets the method to None."""
    obj, name = args
    trace = interp.trace
    if trace.active and not is_a(obj, InterpretedGenerator):
        kind, descr = type_info(trace, type(obj)).look(trace, name)
    else:
        descr = raw_lookup(type(obj), name)
        kind = ABSENT if descr is MISSING else kind_of(descr)
    if not kind:
        return interp.finish(f, protocols.MISSING, then, data)
    if obj is None:
        # For a descriptor, no object.
        return interp.finish(f, getattr(obj, name), then, data)
    return bound(interp, f, kind, descr, obj, type(obj), then, data)


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    {
        builtins.getattr: _getattr,
        builtins.hasattr: _hasattr,
        builtins.setattr: _writing(store_attr),
        builtins.delattr: _writing(delete_attr),
        object.__getattribute__: _object_getattribute,
        object.__setattr__: _writing(generic_store, object.__setattr__),
        object.__delattr__: _writing(generic_delete, object.__delattr__),
        types.ModuleType.__getattribute__: _object_getattribute,
        types.FunctionType.__get__: _bind,
        protocols.special: _special,
    }
)
