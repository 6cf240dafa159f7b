"""The attributes of classes: each is looked up once in a segment, classified by its behaviour, and guarded."""

from __future__ import annotations

import enum
import threading
import types
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends.cuda import SDPAParams
from torch.utils.hooks import RemovableHandle

from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects.iterator_stand_ins import KINDS
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.torch_facts.distributed_tensors import PLACEMENT
from fineline.tracing.identity_guards import guard_mro
from fineline.tracing.local_classes import find, guard_lack
from fineline.tracing.segment_trace import SegmentTrace

MISSING = object()
OPERATOR_SPACES = (torch._ops.OpOverloadPacket, torch._ops.OpOverload, torch._ops._OpNamespace, torch._ops._Ops)

# The behaviours of a class attribute. Kinds below METHOD take precedence over the instance's own dict.
ABSENT, PROPERTY, C_DATA, PY_DATA, METHOD, STATIC, CLASS, C_OTHER, PY_OTHER, PLAIN = range(10)

C_DATA_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)
C_METHOD_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
MODULE_GETATTR = nn.Module.__getattr__
TYPE_MRO = type.__dict__["__mro__"]
TYPE_DICT = type.__dict__["__dict__"]
# C types from these modules read attributes as `object` does, except `NOT_GENERIC`; other C types may have their own way.
GENERIC_MODULES = frozenset(
    ["builtins", "collections", "functools", "itertools", "types", "re", "_thread", "operator", "_io", "torch._C", "torch", "_collections_abc", "_contextvars"]
)
NOT_GENERIC = (types.GenericAlias, weakref.ProxyType, weakref.CallableProxyType, super)
PYTHON_CALLABLES = frozenset({types.FunctionType, types.MethodType, staticmethod, classmethod, property, partial})
DESCRIPTOR_METHODS = ("__get__", "__set__", "__delete__")
# Classes whose instances are not read as `object` reads them, whatever the class defines: `attribute_reads.OF_CLASSES`.
SPECIAL_CLASSES = frozenset({Tensor, type, super, enum.Enum, np.ndarray, RemovableHandle, SDPAParams, *OPERATOR_SPACES, *SYMBOLIC, *PLACEMENT})


def _may_change(cls: type) -> bool:
    """Returns whether attributes of ``cls`` can be assigned; stand-ins for C types count as unchangeable, as these are."""
    return is_users_class(cls) and cls not in KINDS


class TypeInfo:
    """The attributes of a class, each looked up and guarded once in a segment."""

    __slots__ = (
        "after", "cls", "found", "generic", "getattr_fn", "getattribute", "has_dict", "heap", "hides_dict", "is_module", "loaders", "ordinary",
        "setattr_fn",
    )  # fmt: skip

    def __init__(self, trace: SegmentTrace, cls: type) -> None:
        self.cls = cls
        self.heap = _may_change(cls)
        self.found: dict[str, tuple[int, Any]] = {}
        # The loaders for an attribute of an instance, by name: `attribute_reads.loaders_of` finds them once.
        self.loaders: dict[str, tuple[Callable[..., Any], ...]] = {}
        # The attributes that ``super()`` finds for an instance, by the calling class and the name.
        self.after: dict[tuple[type, str], tuple[int, Any]] = {}
        local = issubclass(cls, threading.local)
        # C may keep attributes in a dict that it does not expose, as asyncio's tasks do.
        self.hides_dict = cls.__dictoffset__ != 0 and not local and raw_lookup(cls, "__dict__") is MISSING
        self.has_dict = local or (cls.__dictoffset__ != 0 and not self.hides_dict)
        _, self.getattribute = self.look(trace, "__getattribute__")
        owner = getattr(self.getattribute, "__objclass__", None)
        self.generic = owner is not None and owner.__module__ in GENERIC_MODULES and owner not in NOT_GENERIC and not self.hides_dict
        kind, g = self.look(trace, "__getattr__")
        self.getattr_fn = g if kind else None
        # A Python ``__getattr__`` that is not a plain function makes the class read attributes in its own way.
        self.generic = self.generic and (is_a(g, types.FunctionType) or not in_python(g))
        self.is_module = g is MODULE_GETATTR
        # Whether only the class decides how its instances' attributes are read. Most do: then no further check is needed.
        self.ordinary = SPECIAL_CLASSES.isdisjoint(TYPE_MRO.__get__(cls))
        self.setattr_fn: Any = MISSING

    def look(self, trace: SegmentTrace, name: str) -> tuple[int, Any]:
        """Returns (kind, descriptor) for a name in the MRO, and guards it."""
        entry = self.found.get(name)
        if entry is None:
            entry = self.found[name] = classify(trace, self.cls, name, self.heap)
        return entry

    def look_after(self, trace: SegmentTrace, this: type, name: str) -> tuple[int, Any]:
        """Returns (kind, descriptor) for a name in the MRO after ``this``, and guards it."""
        entry = self.after.get((this, name))
        if entry is None:
            guard_mro(trace, self.cls)
            mro = TYPE_MRO.__get__(self.cls)
            entry = ABSENT, None
            for cls in mro[[k is this for k in mro].index(True) + 1 :]:
                # If the class gets the name later, a lookup there would find another attribute.
                info = trace.namespaces.types.get(cls)
                # Most of these classes are used for nothing else: a new `TypeInfo` would look up and guard three names of each.
                found = info.look(trace, name) if info is not None else classify(trace, cls, name, _may_change(cls))
                if name in TYPE_DICT.__get__(cls):
                    entry = found
                    break
            self.after[this, name] = entry
        return entry

    def forget(self, name: str) -> None:
        """Forgets what a name has meant."""
        self.found.pop(name, None)
        self.loaders.pop(name, None)
        self.after.clear()

    def setter(self, trace: SegmentTrace) -> Any:
        if self.setattr_fn is MISSING:
            self.setattr_fn = self.look(trace, "__setattr__")[1]
        return self.setattr_fn


def forget_attribute(trace: SegmentTrace, cls: type, name: str) -> None:
    """Forgets what a name has meant on a class and on those derived from it, because the class's attribute is about to be written."""
    for info in trace.namespaces.types.values():
        if any([k is cls for k in TYPE_MRO.__get__(info.cls)]):
            info.forget(name)


def raw_lookup(cls: type, name: str) -> Any:
    for k in TYPE_MRO.__get__(cls):
        d = TYPE_DICT.__get__(k)
        if name in d:
            return d[name]
    return MISSING


def c_method(cls: type, fn: types.BuiltinFunctionType) -> Any:
    """Returns the unbound C method that ``fn`` binds. It skips Python methods of that name earlier in the MRO."""
    for k in cls.__mro__:
        descr = k.__dict__.get(fn.__name__)
        if type(descr) is types.MethodDescriptorType:
            return descr
    return raw_lookup(cls, fn.__name__)


def c_class_method(cls: type, fn: types.BuiltinFunctionType) -> Any:
    """Returns the class method in C that ``fn`` binds to ``cls``. It skips methods of that name earlier in the MRO, which `super` skips."""
    for k in cls.__mro__:
        descr = k.__dict__.get(fn.__name__)
        if type(descr) is types.ClassMethodDescriptorType and descr.__get__(None, cls) == fn:
            return descr
    return raw_lookup(cls, fn.__name__)


def kind_of(descr: Any) -> int:
    t = type(descr)
    if t is types.FunctionType:
        return METHOD
    if t is property:
        return PROPERTY
    if t is staticmethod:
        return STATIC
    if t is classmethod:
        return CLASS
    if t in C_DATA_TYPES:
        return C_DATA
    if t in C_METHOD_TYPES:
        return C_OTHER
    getter, setter = raw_lookup(t, "__get__"), raw_lookup(t, "__set__")
    deleter = raw_lookup(t, "__delete__")
    if getter is MISSING:
        return PLAIN
    if is_a(getter, types.FunctionType):
        return PY_DATA if setter is not MISSING or deleter is not MISSING else PY_OTHER
    if setter is not MISSING:
        return C_DATA if not is_a(descr, property) else PROPERTY
    return C_OTHER


def classify(trace: SegmentTrace, cls: type, name: str, heap: bool) -> tuple[int, Any]:
    """Returns (kind, descriptor) for a name in the MRO of a class, and guards what the captured code has not written itself."""
    mutations = trace.mutations
    if not heap or name not in mutations.class_attributes or not any([mutations.class_written(k, name) for k in TYPE_MRO.__get__(cls)]):
        return _classify(trace, cls, name, heap)
    guard_mro(trace, cls)
    for k in TYPE_MRO.__get__(cls):
        here, written = name in TYPE_DICT.__get__(k), mutations.class_written(k, name)
        if here and not written:
            return _classify(trace, k, name, _may_change(k))
        if here:
            descr = TYPE_DICT.__get__(k)[name]
            _guard_descriptor(trace, descr)
            return kind_of(descr), descr
        if not written:
            guard_lack(trace, k, name)
    return ABSENT, None


def _classify(trace: SegmentTrace, cls: type, name: str, heap: bool) -> tuple[int, Any]:
    descr = raw_lookup(cls, name)
    if heap and cls in trace.classes.local:
        holder = find(trace, cls, name)
        if holder is None:
            _guard_descriptor(trace, descr)
            return (ABSENT, None) if descr is MISSING else (kind_of(descr), descr)
        cls = holder
    if descr is MISSING:
        if heap:
            trace.guards.type_lacks(cls, name)
        return ABSENT, None
    if heap:
        src = trace.guards.type_attr(cls, name, descr)
        if not src.checked:
            if is_a(descr, (int, float, str, tuple, bytes, type(None))) or is_a(descr, Tensor):
                trace.load(descr, src)
            else:
                trace.guards.check(src, "is", descr)
                if descr not in trace.sources:
                    trace.adopt(descr, src)
        t = type(descr)
        if is_users_class(t) and not is_a(descr, (type, Tensor, enum.Enum)):
            # The attribute's ``__class__`` may be assigned.
            trace.guards.check(src, "type", t)
            _guard_descriptor(trace, descr)
    return kind_of(descr), descr


def _guard_descriptor(trace: SegmentTrace, descr: Any) -> None:
    """Guards how a class attribute behaves: the methods of its own class, which may change, decide that."""
    t = type(descr)
    if is_users_class(t) and not is_a(descr, (type, Tensor, enum.Enum)):
        info = type_info(trace, t)
        for method in DESCRIPTOR_METHODS:
            info.look(trace, method)


def type_info(trace: SegmentTrace, cls: type) -> TypeInfo:
    info = trace.namespaces.types.get(cls)
    if info is None:
        info = trace.namespaces.types[cls] = TypeInfo(trace, cls)
    return info


def dict_of(obj: Any, info: TypeInfo) -> dict:
    """Returns ``obj.__dict__`` without calling the user's ``__getattribute__``."""
    return obj.__dict__ if info.generic else object.__getattribute__(obj, "__dict__")


def space_of(trace: SegmentTrace, obj: Any, info: TypeInfo) -> dict:
    """Returns the dict from which the capture reads the attributes of ``obj``: its own, or what stands for it."""
    d = dict_of(obj, info)
    return d if trace.namespaces.shadows is None else trace.namespaces.shadows.get(d, d)


def special_method(trace: SegmentTrace, t: type, name: str) -> Any:
    """Returns the attribute ``name`` of a class and its bases, MISSING if there is none; guarded while a segment is captured."""
    if not trace.active:
        return raw_lookup(t, name)
    kind, descr = type_info(trace, t).look(trace, name)
    return MISSING if kind == ABSENT else descr


def in_python(method: Any) -> bool:
    """Returns whether a special method found on a class may run Python code: it is then not a C method, but need not be a function."""
    t = type(method)
    if t in PYTHON_CALLABLES:
        return True
    return is_users_class(t) and any([is_a(raw_lookup(t, name), types.FunctionType) for name in ("__get__", "__call__")])


def watches(trace: SegmentTrace, t: type) -> bool:
    """Returns whether user code runs at every attribute read on an instance."""
    return is_users_class(t) and is_a(type_info(trace, t).getattribute, types.FunctionType)
