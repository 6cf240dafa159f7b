"""Attribute writes and deletions, as `object.__setattr__` and similar functions do them; the mutation log notes their changes.

As for reads, the order in which Python searches is data: `STORERS` and `DELETERS`.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import RemovableHandle

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects.attribute_reads import NEXT, Loaded
from fineline.objects.type_info import (
    C_DATA,
    GENERIC_MODULES,
    MISSING,
    PLAIN,
    PROPERTY,
    PY_DATA,
    PY_OTHER,
    TypeInfo,
    forget_attribute,
    in_python,
    raw_lookup,
    space_of,
    type_info,
)
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tables import attributes
from fineline.torch_facts.names import OF_FAKES
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY, own_dict
from fineline.tracing.plain_values import PLAIN_TENSORS
from fineline.tracing.segment_trace import SegmentTrace

SET_ON_CLASS, DELETE_FROM_CLASS = type.__setattr__, type.__delattr__
# Classes whose attributes others than lookups read: C, or tables that the engine makes of them.
WATCHED = (type, Tensor, torch.autograd.Function, enum.Enum)
# An array, and the flags that show whether it may be written.
OF_ARRAYS = frozenset({np.ndarray, *[type(flags) for flags in attributes(getattr(np, "array", lambda items: None)([]), "flags")]})


def store_attr(interp: Interp, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    trace = interp.trace
    if not trace.active:
        setattr(obj, name, value)
        return None
    t = type(obj)
    if t in SYMBOLIC:
        raise _unset(obj, name, value, f".{name} on a number")
    if is_a(obj, types.FunctionType) and obj in trace.sources:
        raise _unset(obj, name, value, f".{name} on a function")
    if t is FakeTensor and name in OF_FAKES:
        raise _unset(obj, name, value, f".{name} on a tensor made in the captured code")
    if t in OF_ARRAYS:
        # NumPy refuses to set some of them back.
        raise _unset(obj, name, value, f".{name} on a {t.__name__}")
    info = type_info(trace, t)
    setter = info.setter(trace)
    if is_a(setter, types.FunctionType) or getattr(setter, "__name__", "__setattr__") != "__setattr__":
        return interp.call(f, setter, [obj, name, value], None, interp.discard)
    if setter is SET_ON_CLASS:
        return store_on_class(interp, f, obj, name, value)
    if in_python(setter) or getattr(setter, "__objclass__", type).__module__ not in GENERIC_MODULES or info.hides_dict or is_a(obj, types.ModuleType):
        raise _unset(obj, name, value, f".{name} on a {t.__name__}")
    return generic_store(interp, f, obj, name, value)


def _unset(obj: Any, name: str, value: Any, what: str) -> GraphBreak:
    return GraphBreak(_of_object(obj, setattr), (obj, name, value), None, "FL432", f"setting {what}").discard()


def _of_object(obj: Any, fn: Any) -> Any:
    """Returns ``setattr`` or ``delattr``, or that of `object`, or of `type`, if the class has a Python version, which has already run or was bypassed."""
    method = f"__{fn.__name__}__"
    own = is_a(raw_lookup(type(obj), method), types.FunctionType)
    return getattr(type if is_a(obj, type) else object, method) if own else fn


def _of_descriptor(kind: int, descr: Any, name: str, other: str) -> Any:
    """Returns the descriptor's method that replaces a write to the object. The descriptor may have this method without a ``__get__``."""
    if kind not in (PLAIN, PY_OTHER, PY_DATA):
        return None
    method = raw_lookup(type(descr), name)
    if method is not MISSING:
        return method
    if raw_lookup(type(descr), other) is not MISSING:
        raise AttributeError(name)
    return None


def generic_store(interp: Interp, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    """Stores an attribute as ``object.__setattr__`` does: by the first of `STORERS` that applies."""
    info = type_info(interp.trace, type(obj))
    kind, descr = info.look(interp.trace, name)
    for store in STORERS:
        frame = store(interp, f, obj, name, value, info, kind, descr)
        if frame is not NEXT:
            return frame
    # C raises the error.
    object.__setattr__(obj, name, value)
    return None


def store_on_class(interp: Interp, f: Frame, cls: type, name: str, value: Any) -> Frame | None:
    """Stores an attribute of a class as ``type.__setattr__`` does."""
    trace = interp.trace
    if not is_a(cls, type):
        SET_ON_CLASS(cls, name, value)
    if not _is_plain(trace, cls, name):
        raise _unset(cls, name, value, f".{name} on a class")
    forget_attribute(trace, cls, name)
    if cls not in trace.made:
        trace.mutations.note_class(cls, trace.sources.get(cls) or trace.pin(cls, cls.__qualname__), name)
    SET_ON_CLASS(cls, name, value)
    return None


def delete_from_class(interp: Interp, f: Frame, cls: type, name: str) -> Frame | None:
    """Deletes an attribute of a class that the segment has made or added: any other would get another place in the class if it came back."""
    trace = interp.trace
    if not is_a(cls, type):
        DELETE_FROM_CLASS(cls, name)
    space = own_dict(cls)
    own = cls in trace.made or (trace.mutations.class_written(cls, name) and name not in trace.mutations.before(space))
    if not own or name not in space or not _is_plain(trace, cls, name):
        raise GraphBreak(_of_object(cls, delattr), (cls, name), None, "FL432", f"deleting .{name} of a class").discard()
    forget_attribute(trace, cls, name)
    DELETE_FROM_CLASS(cls, name)
    return None


def _is_plain(trace: SegmentTrace, cls: type, name: str) -> bool:
    """Returns whether an attribute of a class is one that only lookups of its name read: neither C nor a metaclass does more with it."""
    if not is_users_class(cls) or issubclass(cls, WATCHED) or type(name) is not str or (name[:2] == name[-2:] == "__"):
        return False
    if cls not in trace.made and (cls in trace.classes.local or cls in trace.classes.made):
        return False
    if cls is RemovableHandle and len(trace.mutations.hooks):
        # Its count is not the one that the next call finds.
        return False
    return not PROPERTY <= type_info(trace, type(cls)).look(trace, name)[0] <= PY_DATA


def set_property(interp: Interp, f: Frame, obj: Any, name: str, value: Any, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Calls the setter of a property; if there is none, C raises."""
    if kind != PROPERTY:
        return NEXT
    if descr.fset is None:
        _of_object(obj, setattr)(obj, name, value)
        return None
    return interp.call(f, descr.fset, [obj, value], None, interp.discard)


def set_by_descriptor(interp: Interp, f: Frame, obj: Any, name: str, value: Any, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Calls the ``__set__`` of another descriptor written in Python."""
    method = _of_descriptor(kind, descr, "__set__", "__delete__")
    return NEXT if method is None else interp.call(f, method, [descr, obj, value], None, interp.discard)


def set_member(interp: Interp, f: Frame, obj: Any, name: str, value: Any, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Writes a slot, or another attribute that C stores."""
    if kind != C_DATA and not (name == "__dict__" and info.has_dict):
        return NEXT
    if is_a(obj, Tensor):
        return interp.tensors.set_attribute(interp, f, obj, name, descr, value, interp.discard)
    write_member(interp, obj, descr, name, value)
    return None


def set_in_instance(interp: Interp, f: Frame, obj: Any, name: str, value: Any, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Writes to the instance's dict."""
    if not info.has_dict:
        return NEXT
    trace = interp.trace
    d = space_of(trace, obj, info)
    src = trace.dict_source(obj, d)
    if src is not None:
        d = trace.writable(obj, d, src)
        trace.mutations.note(d, src, name)
        trace.namespaces.forget_globals(d)
    d[name] = value
    return None


STORERS: tuple[Callable[[Interp, Frame, Any, str, Any, TypeInfo, int, Any], Loaded], ...] = (
    set_property, set_by_descriptor, set_member, set_in_instance,
)  # fmt: skip


def write_member(interp: Interp, obj: Any, descr: Any, name: str, value: Any) -> None:
    trace = interp.trace
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
        if is_a(descr, types.GetSetDescriptorType):
            # It has no getter, and C may not check for a deletion: nothing could undo or repeat the write.
            raise _unset(obj, name, value, f".{name}, which cannot be read, on a {type(obj).__name__}") from None
    try:
        trace.mutations.set_slot(obj, src, descr, old, value)
        return
    except AttributeError:
        # The descriptor has no setter. Its type decides that, and is guarded.
        raise
    except Exception as e:
        # The object's contents may decide whether it raises.
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
    if type(obj) is FakeTensor and name in OF_FAKES:
        raise GraphBreak(delattr, (obj, name), None, "FL432", f"deleting .{name} of a tensor made in the captured code").discard()
    info = type_info(trace, type(obj))
    custom = info.look(trace, "__delattr__")[1]
    if is_a(custom, types.FunctionType) or getattr(custom, "__name__", "__delattr__") != "__delattr__":
        return interp.call(f, custom, [obj, name], None, interp.discard)
    if custom is DELETE_FROM_CLASS:
        return delete_from_class(interp, f, obj, name)
    if in_python(custom):
        raise GraphBreak(delattr, (obj, name), None, "FL432", f"deleting .{name} on a {type(obj).__name__}").discard()
    return generic_delete(interp, f, obj, name)


def generic_delete(interp: Interp, f: Frame, obj: Any, name: str) -> Frame | None:
    """Deletes an attribute as ``object.__delattr__`` does: by the first of `DELETERS` that applies."""
    info = type_info(interp.trace, type(obj))
    kind, descr = info.look(interp.trace, name)
    for delete in DELETERS:
        frame = delete(interp, f, obj, name, info, kind, descr)
        if frame is not NEXT:
            return frame
    # C raises the error.
    object.__delattr__(obj, name)
    return None


def delete_property(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Calls the deleter of a property; if there is none, C raises, even if the object's dict has the name."""
    if kind != PROPERTY:
        return NEXT
    if descr.fdel is None:
        _of_object(obj, delattr)(obj, name)
    return interp.call(f, descr.fdel, [obj], None, interp.discard)


def delete_by_descriptor(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Calls the ``__delete__`` of another descriptor written in Python."""
    method = _of_descriptor(kind, descr, "__delete__", "__set__")
    return NEXT if method is None else interp.call(f, method, [descr, obj], None, interp.discard)


def delete_eagerly(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Breaks the graph for deletions that no log can undo, such as those of slots."""
    if is_a(obj, Tensor) and name == "grad":
        # C then sets it to None.
        return interp.tensors.set_attribute(interp, f, obj, name, descr, None, interp.discard)
    if (type(obj) in PLAIN_TENSORS or not is_a(obj, Tensor)) and kind != C_DATA and info.has_dict and name != "__dict__":
        return NEXT
    raise GraphBreak(_of_object(obj, delattr), (obj, name), None, "FL432", f"deleting .{name} of a {type(obj).__name__}").discard()


def delete_in_instance(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, kind: int, descr: Any) -> Loaded:
    """Deletes from the instance's dict."""
    trace = interp.trace
    d = space_of(trace, obj, info)
    src = trace.dict_source(obj, d)
    if name not in d:
        if src is not None:
            trace.read_absent(d, src, name)
        return NEXT
    if src is not None:
        trace.guard_presence(d, src, name)
        d = trace.writable(obj, d, src)
        trace.mutations.note(d, src, name)
        trace.namespaces.forget_globals(d)
    del d[name]
    return None


DELETERS: tuple[Callable[[Interp, Frame, Any, str, TypeInfo, int, Any], Loaded], ...] = (
    delete_property, delete_by_descriptor, delete_eagerly, delete_in_instance,
)  # fmt: skip
