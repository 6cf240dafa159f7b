"""Attribute writes and deletions, as `object.__setattr__` and its kin do them, with what they change in the journal."""

from __future__ import annotations

import types
from typing import Any

from torch import Tensor

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects.attribute_reads import (
    C_DATA,
    GENERIC_MODULES,
    MISSING,
    PLAIN,
    PROPERTY,
    PY_DATA,
    PY_OTHER,
    dict_of,
    raw_lookup,
    type_info,
)
from fineline.objects.class_writes import set_on_class
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tracing.identity_guards import CLASS_MRO
from fineline.tracing.mutation_log import EMPTY


def store_attr(vm: Any, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    cap = vm.cap
    if not cap.active:
        setattr(obj, name, value)
        return None
    t = type(obj)
    if t in SYMBOLIC:
        raise _unset(obj, name, value, f".{name} on a number")
    if is_a(obj, type) and id(obj) in cap.made and type(obj).__setattr__ is type.__setattr__:
        _forget(cap, obj)
        setattr(obj, name, value)
        return None
    if is_a(obj, type) and set_on_class(cap, obj, name, value):
        return None
    if is_a(obj, type) or (is_a(obj, types.FunctionType) and id(obj) in cap.sources):
        raise _unset(obj, name, value, f".{name} on a {'class' if is_a(obj, type) else 'function'}")
    info = type_info(cap, t)
    setter = info.setter(cap)
    if is_a(setter, types.FunctionType) or getattr(setter, "__name__", "__setattr__") != "__setattr__":
        return vm.call(f, setter, [obj, name, value], None, vm.discard)
    if getattr(setter, "__objclass__", type).__module__ not in GENERIC_MODULES or info.hides_dict or is_a(obj, types.ModuleType):
        raise _unset(obj, name, value, f".{name} on a {t.__name__}")
    return generic_store(vm, f, obj, name, value)


def _forget(cap: Any, cls: type) -> None:
    """What has been looked up on a class made by the call, and on those below it, may change now."""
    for t in [t for t in cap.types if cls in CLASS_MRO.__get__(t)]:
        del cap.types[t]


def _unset(obj: Any, name: str, value: Any, what: str) -> GraphBreak:
    return GraphBreak(_of_object(obj, setattr), (obj, name, value), None, "FL432", f"setting {what}").discard()


def _of_object(obj: Any, fn: Any) -> Any:
    """``setattr`` or ``delattr``; `object`'s own where an instance's class has one in Python, which has been run then, or passed over."""
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


def generic_store(vm: Any, f: Frame, obj: Any, name: str, value: Any) -> Frame | None:
    """What ``object.__setattr__`` does."""
    cap = vm.cap
    info = type_info(cap, type(obj))
    kind, descr = info.look(cap, name)
    if kind == PROPERTY:
        if descr.fset is None:
            _of_object(obj, setattr)(obj, name, value)
            return None
        return vm.call(f, descr.fset, [obj, value], None, vm.discard)
    method = _of_descriptor(kind, descr, "__set__", "__delete__")
    if method is not None:
        return vm.call(f, method, [descr, obj, value], None, vm.discard)
    if kind == C_DATA or (name == "__dict__" and info.has_dict):
        write_member(vm, obj, descr, name, value)
        return None
    if not info.has_dict:
        object.__setattr__(obj, name, value)
        return None
    d = dict_of(obj, info)
    src = cap.dict_source(obj, d)
    if src is not None:
        cap.journal.note(d, src, name)
        cap.global_values.pop(id(d), None)
    d[name] = value
    return None


def write_member(vm: Any, obj: Any, descr: Any, name: str, value: Any) -> None:
    cap = vm.cap
    if is_a(obj, Tensor):
        vm.tensors.set_attribute(vm, obj, name, descr, value)
        return
    if name == "__class__" or name == "__dict__":
        raise _unset(obj, name, value, name)
    src = cap.sources.get(id(obj))
    if src is None and id(obj) not in cap.made:
        raise _unset(obj, name, value, f".{name} on a {type(obj).__name__}")
    if src is None:
        descr.__set__(obj, value)
        return
    try:
        old = descr.__get__(obj, type(obj))
    except AttributeError:
        old = EMPTY
    try:
        cap.journal.set_slot(obj, src, descr, old, value)
        return
    except AttributeError:
        # The descriptor has no setter: its type says that, which is guarded.
        raise
    except Exception as e:
        # What the object holds may decide.
        border = _unset(obj, name, value, f".{name} on a {type(obj).__name__}, which raises {type(e).__name__}")
        border.raised = e
    raise border


def delete_attr(vm: Any, f: Frame, obj: Any, name: str) -> Frame | None:
    cap = vm.cap
    if not cap.active:
        delattr(obj, name)
        return None
    if type(obj) in SYMBOLIC:
        raise GraphBreak(delattr, (obj, name), None, "FL432", f"deleting .{name} of a number").discard()
    info = type_info(cap, type(obj))
    custom = info.look(cap, "__delattr__")[1]
    if is_a(custom, types.FunctionType) or getattr(custom, "__name__", "__delattr__") != "__delattr__":
        return vm.call(f, custom, [obj, name], None, vm.discard)
    return generic_delete(vm, f, obj, name)


def generic_delete(vm: Any, f: Frame, obj: Any, name: str) -> Frame | None:
    cap = vm.cap
    info = type_info(cap, type(obj))
    kind, descr = info.look(cap, name)
    if kind == PROPERTY and descr.fdel is None:
        # Whatever the object's dict has under that name.
        _of_object(obj, delattr)(obj, name)
    if kind == PROPERTY:
        return vm.call(f, descr.fdel, [obj], None, vm.discard)
    method = _of_descriptor(kind, descr, "__delete__", "__set__")
    if method is not None:
        return vm.call(f, method, [descr, obj], None, vm.discard)
    if is_a(obj, type) and id(obj) in cap.made:
        _forget(cap, obj)
        delattr(obj, name)
        return None
    if is_a(obj, (type, Tensor)) or kind == C_DATA or not info.has_dict or name == "__dict__":
        raise GraphBreak(_of_object(obj, delattr), (obj, name), None, "FL432", f"deleting .{name} of a {type(obj).__name__}").discard()
    d = dict_of(obj, info)
    src = cap.dict_source(obj, d)
    if name not in d:
        if src is not None:
            cap.read_absent(d, src, name)
        object.__delattr__(obj, name)
        return None
    if src is not None:
        cap.guard_presence(d, src, name)
        cap.journal.note(d, src, name)
        cap.global_values.pop(id(d), None)
    del d[name]
    return None
