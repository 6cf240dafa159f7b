"""Attribute writes and deletions, as `object.__setattr__` and its kin do them, with what they change in the mutation log."""

from __future__ import annotations

import types
from typing import Any

from torch import Tensor

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects.type_info import C_DATA, GENERIC_MODULES, MISSING, PLAIN, PROPERTY, PY_DATA, PY_OTHER, dict_of, raw_lookup, type_info
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY


def store_attr(interp: Interp, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    trace = interp.trace
    if not trace.active:
        setattr(obj, name, value)
        return None
    t = type(obj)
    if t in SYMBOLIC:
        raise _unset(obj, name, value, f".{name} on a number")
    if is_a(obj, type) or (is_a(obj, types.FunctionType) and obj in trace.sources):
        raise _unset(obj, name, value, f".{name} on a {'class' if is_a(obj, type) else 'function'}")
    info = type_info(trace, t)
    setter = info.setter(trace)
    if is_a(setter, types.FunctionType) or getattr(setter, "__name__", "__setattr__") != "__setattr__":
        return interp.call(f, setter, [obj, name, value], None, interp.discard)
    if getattr(setter, "__objclass__", type).__module__ not in GENERIC_MODULES or info.hides_dict or is_a(obj, types.ModuleType):
        raise _unset(obj, name, value, f".{name} on a {t.__name__}")
    return generic_store(interp, f, obj, name, value)


def _unset(obj: Any, name: str, value: Any, what: str) -> GraphBreak:
    return GraphBreak(_of_object(obj, setattr), (obj, name, value), None, "FL432", f"setting {what}").discard()


def _of_object(obj: Any, fn: Any) -> Any:
    """Returns ``setattr`` or ``delattr``; those of `object` if the class has one in Python, which has been run then, or bypassed."""
    method = f"__{fn.__name__}__"
    own = not is_a(obj, type) and is_a(raw_lookup(type(obj), method), types.FunctionType)
    return getattr(object, method) if own else fn


def _of_descriptor(kind: int, descr: Any, name: str, other: str) -> Any:
    """Returns the method of a descriptor that is called instead of a write into the object: it may have that and no ``__get__``."""
    if kind not in (PLAIN, PY_OTHER, PY_DATA):
        return None
    method = raw_lookup(type(descr), name)
    if method is not MISSING:
        return method
    if raw_lookup(type(descr), other) is not MISSING:
        raise AttributeError(name)
    return None


def generic_store(interp: Interp, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    """Stores an attribute as ``object.__setattr__`` does."""
    trace = interp.trace
    info = type_info(trace, type(obj))
    kind, descr = info.look(trace, name)
    if kind == PROPERTY:
        if descr.fset is None:
            _of_object(obj, setattr)(obj, name, value)
            return None
        return interp.call(f, descr.fset, [obj, value], None, interp.discard)
    method = _of_descriptor(kind, descr, "__set__", "__delete__")
    if method is not None:
        return interp.call(f, method, [descr, obj, value], None, interp.discard)
    if kind == C_DATA or (name == "__dict__" and info.has_dict):
        write_member(interp, obj, descr, name, value)
        return None
    if not info.has_dict:
        object.__setattr__(obj, name, value)
        return None
    d = dict_of(obj, info)
    src = trace.dict_source(obj, d)
    if src is not None:
        trace.mutations.note(d, src, name)
        trace.namespaces.forget_globals(d)
    d[name] = value
    return None


def write_member(interp: Interp, obj: Any, descr: Any, name: str, value: Any) -> None:
    trace = interp.trace
    if is_a(obj, Tensor):
        interp.tensors.set_attribute(interp, obj, name, descr, value)
        return
    if name == "__class__" or name == "__dict__":
        raise _unset(obj, name, value, name)
    src = trace.sources.get(obj)
    if src is None and obj not in trace.made:
        raise _unset(obj, name, value, f".{name} on a {type(obj).__name__}")
    if src is None:
        descr.__set__(obj, value)
        return
    try:
        old = descr.__get__(obj, type(obj))
    except AttributeError:
        old = EMPTY
    try:
        trace.mutations.set_slot(obj, src, descr, old, value)
        return
    except AttributeError:
        # The descriptor has no setter: its type says that, which is guarded.
        raise
    except Exception as e:
        # What the object holds may decide.
        graph_break = _unset(obj, name, value, f".{name} on a {type(obj).__name__}, which raises {type(e).__name__}")
        graph_break.raised = e
    raise graph_break


def delete_attr(interp: Interp, f: Frame, obj: Any, name: str) -> Frame | None:
    trace = interp.trace
    if not trace.active:
        delattr(obj, name)
        return None
    if type(obj) in SYMBOLIC:
        raise GraphBreak(delattr, (obj, name), None, "FL432", f"deleting .{name} of a number").discard()
    info = type_info(trace, type(obj))
    custom = info.look(trace, "__delattr__")[1]
    if is_a(custom, types.FunctionType) or getattr(custom, "__name__", "__delattr__") != "__delattr__":
        return interp.call(f, custom, [obj, name], None, interp.discard)
    return generic_delete(interp, f, obj, name)


def generic_delete(interp: Interp, f: Frame, obj: Any, name: str) -> Frame | None:
    trace = interp.trace
    info = type_info(trace, type(obj))
    kind, descr = info.look(trace, name)
    if kind == PROPERTY and descr.fdel is None:
        # Whatever the object's dict has under that name.
        _of_object(obj, delattr)(obj, name)
    if kind == PROPERTY:
        return interp.call(f, descr.fdel, [obj], None, interp.discard)
    method = _of_descriptor(kind, descr, "__delete__", "__set__")
    if method is not None:
        return interp.call(f, method, [descr, obj], None, interp.discard)
    if is_a(obj, (type, Tensor)) or kind == C_DATA or not info.has_dict or name == "__dict__":
        raise GraphBreak(_of_object(obj, delattr), (obj, name), None, "FL432", f"deleting .{name} of a {type(obj).__name__}").discard()
    d = dict_of(obj, info)
    src = trace.dict_source(obj, d)
    if name not in d:
        if src is not None:
            trace.read_absent(d, src, name)
        object.__delattr__(obj, name)
        return None
    if src is not None:
        trace.guard_presence(d, src, name)
        trace.mutations.note(d, src, name)
        trace.namespaces.forget_globals(d)
    del d[name]
    return None
