"""Handlers of getattr(), hasattr(), setattr(), delattr() and the methods of ``object`` that do the same."""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from fineline.cpython import protocols
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import DISCARD, Delivery, GraphBreak
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects.attribute_errors import read_attribute
from fineline.objects.attribute_reads import BINDERS, load_as_object, load_attr, load_without_getattr
from fineline.objects.attribute_writes import (
    DELETE_FROM_CLASS,
    SET_ON_CLASS,
    delete_attr,
    delete_from_class,
    generic_delete,
    generic_store,
    store_attr,
    store_on_class,
)
from fineline.objects.c_argument_errors import refused
from fineline.objects.iterator_stand_ins import ITERATOR_STAND_INS
from fineline.objects.type_info import ABSENT, METHOD, MISSING, PROPERTY, PY_DATA, PY_OTHER, kind_of, raw_lookup, type_info
from fineline.symbolic.arithmetic import SYMBOLIC, settled
from fineline.torch_facts.names import OF_FAKES
from fineline.tracing.interp import Call, Handler, Interp


def _getattr(call: Call) -> Frame | None:
    args, interp = call.args, call.interp
    if len(args) not in (2, 3) or call.kwargs or not is_a(args[1], str):
        return call.finish(getattr(*args, **(call.kwargs or {})))
    if not call.trace.active:
        return call.finish(getattr(*args))
    if len(args) == 2:
        return read_attribute(interp, call.frame, args[0], args[1], call.then)
    obj, name, default = args
    if _simple(interp, obj, name):
        # The common case needs no frame: no user code runs, so an AttributeError comes from this read.
        try:
            if is_a(obj, nn.Module):
                return load_without_getattr(interp, call.frame, obj, name, type_info(call.trace, type(obj)), call.then)
            return load_attr(interp, call.frame, obj, name, call.then)
        except AttributeError:
            return call.finish(default)
    return call.instead(protocols.attribute_or, [builtins.getattr, obj, name, default])


def _simple(interp: Interp, obj: Any, name: str) -> bool:
    """Returns whether a read of attribute ``name`` runs no user code, so that it raises any AttributeError at once."""
    if is_a(obj, (type, types.ModuleType, super)):
        return is_a(obj, types.ModuleType) and type(obj) is types.ModuleType and "__getattr__" not in obj.__dict__
    info = type_info(interp.trace, type(obj))
    if not info.generic or (info.getattr_fn is not None and not info.is_module):
        return False
    return info.look(interp.trace, name)[0] not in (PROPERTY, PY_DATA, PY_OTHER)


# Stand-ins for objects that have what their type has: no attribute of a number depends on its value.
_OF_TYPE = SYMBOLIC | ITERATOR_STAND_INS


def _hasattr(call: Call) -> Frame | None:
    obj, name = call.args
    if not is_a(name, str) or not (call.trace.active or type(obj) in ITERATOR_STAND_INS):
        return call.finish(hasattr(obj, name))
    if type(obj) in _OF_TYPE or (type(obj) is np.ndarray and obj in call.interp.tensors.arrays.traced):
        return call.finish(raw_lookup(call.interp.type_of(obj), name) is not MISSING)
    # At an attribute that only a stand-in has, `load_attr` breaks the graph.
    info = None if is_a(obj, (type, super)) or (is_a(obj, FakeTensor) and name in OF_FAKES) else type_info(call.trace, type(obj))
    if info is not None and info.generic:
        kind, _ = info.look(call.trace, name)
        if kind >= METHOD:
            # A plain class attribute or a method: the instance's dict can only hide it, not take it away.
            return call.finish(True)
        if kind == ABSENT and (info.getattr_fn is None or info.is_module) and not is_a(obj, types.ModuleType):
            try:
                return Delivery(_true, call.then).of(load_without_getattr, call.interp, call.frame, obj, name, info)
            except AttributeError:
                return call.finish(False)
    return call.instead(protocols.has_attribute, [builtins.getattr, obj, name])


def _true(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    return interp.finish(f, True, then)


def _writing(write: Callable, plain: Callable | None = None) -> Handler:
    """Returns the handler of a function that writes an attribute and returns None. ``plain``: makes the write outside of captures."""

    def handler(call: Call) -> Frame | None:
        if plain is not None and not call.trace.active:
            return call.finish(plain(*call.args))
        if not is_a(call.args[1], str):
            return refused(call)
        try:
            frame = write(call.interp, call.frame, *call.args)
        except GraphBreak as b:
            if b.then is DISCARD:
                # The call has a result: None.
                b.then = call.then
            raise
        if frame is None:
            return call.finish(None)
        frame.then = Delivery(_none, call.then)
        return frame

    return handler


def _none(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    return interp.finish(f, None, then)


def _object_getattribute(call: Call) -> Frame | None:
    obj, name = call.args
    if not call.trace.active:
        return call.finish(object.__getattribute__(obj, name))
    return load_as_object(call.interp, call.frame, obj, name, type_info(call.trace, type(obj)), call.then)


def _special(call: Call) -> Frame | None:
    """Handles `protocols.special`: delivers a bound method found on the type, or MISSING; None if the class sets the method to None."""
    obj, name = settled(call.args[0]), call.args[1]
    trace = call.trace
    if trace.active and not is_a(obj, InterpretedGenerator):
        kind, descr = type_info(trace, type(obj)).look(trace, name)
    else:
        descr = raw_lookup(type(obj), name)
        kind = ABSENT if descr is MISSING else kind_of(descr)
    if not kind:
        return call.finish(protocols.MISSING)
    if obj is None:
        # A descriptor's ``__get__`` takes None for "no object".
        return call.finish(getattr(obj, name))
    return BINDERS[kind](call.interp, call.frame, descr, obj, type(obj), call.then)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        builtins.getattr: _getattr,
        builtins.hasattr: _hasattr,
        builtins.setattr: _writing(store_attr),
        builtins.delattr: _writing(delete_attr),
        object.__getattribute__: _object_getattribute,
        object.__setattr__: _writing(generic_store, object.__setattr__),
        object.__delattr__: _writing(generic_delete, object.__delattr__),
        SET_ON_CLASS: _writing(store_on_class, SET_ON_CLASS),
        DELETE_FROM_CLASS: _writing(delete_from_class, DELETE_FROM_CLASS),
        types.ModuleType.__getattribute__: _object_getattribute,
        # It returns a method, or the function itself.
        types.FunctionType.__get__: Call.run_in_c,
        protocols.special: _special,
    }
)
