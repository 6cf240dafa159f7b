"""Attribute reads, as `object.__getattribute__` and its kin do them, with what they read guarded."""

from __future__ import annotations

import enum
import threading
import types
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from fineline.cpython import protocols
from fineline.cpython.numpy_scalars import OF_TYPE
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.kinds import is_a
from fineline.objects.carried_iterators import STANDING
from fineline.objects.iterator_stand_ins import KINDS
from fineline.symbolic.arithmetic import SYMBOLIC, settled
from fineline.torch_facts.callables import TENSOR_ATTRS
from fineline.tracing.identity_guards import guard_mro, member_is_empty
from fineline.tracing.interp import Interp
from fineline.tracing.local_classes import find, member_of
from fineline.tracing.segment_trace import HEAP_TYPE, SegmentTrace, is_value

MISSING = object()
OPERATOR_SPACES = (torch._ops.OpOverloadPacket, torch._ops.OpOverload, torch._ops._OpNamespace, torch._ops._Ops)
ENUM_NAMES = ("value", "name", "_value_", "_name_")

# How a name found on a type behaves. Kinds below METHOD take precedence over the instance's own dict.
ABSENT, PROPERTY, C_DATA, PY_DATA, METHOD, STATIC, CLASS, C_OTHER, PY_OTHER, PLAIN = range(10)

C_DATA_TYPES = (types.MemberDescriptorType, types.GetSetDescriptorType)
C_METHOD_TYPES = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# What methods of C's are when they are bound: they name their object, and are found on it again by their name.
C_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType, *C_METHOD_TYPES)
# The types of the numbers that symbols stand for.
STANDS_FOR: Mapping[type, type] = types.MappingProxyType({torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool})
MODULE_GETATTR = nn.Module.__getattr__
TYPE_MRO = type.__dict__["__mro__"]
TYPE_DICT = type.__dict__["__dict__"]
# C types of these modules read attributes as `object` does, apart from the ones named; any other C type may do as it likes.
GENERIC_MODULES = frozenset(
    ("builtins", "collections", "functools", "itertools", "types", "re", "_thread", "operator", "_io", "torch._C", "torch", "_collections_abc")
)
NOT_GENERIC = (types.GenericAlias, weakref.ProxyType, weakref.CallableProxyType, super)
# What an iterator that stands for one of C's answers itself.
ITERATING = frozenset({"__next__", "__iter__", "__class__"})
PYTHON_CALLABLES = frozenset({types.FunctionType, types.MethodType, staticmethod, classmethod, property, partial})
DESCRIPTOR_METHODS = ("__get__", "__set__", "__delete__")
METHOD_FUNC = types.MethodType.__dict__["__func__"]


# Classes whose instances have ways of their own to have attributes read.
_OTHERS = frozenset({Tensor, type, super, enum.Enum, *OPERATOR_SPACES, *SYMBOLIC})


def _may_change(cls: type) -> bool:
    """Returns whether attributes of ``cls`` can be assigned; what stands for C's iterators changes no more than they do."""
    return bool(cls.__flags__ & HEAP_TYPE) and cls not in KINDS


class TypeInfo:
    """A type's names, looked up once in a segment and guarded there."""

    __slots__ = ("behind", "cls", "found", "generic", "getattr_fn", "getattribute", "has_dict", "heap", "hides_dict", "is_module", "ordinary", "setattr_fn")

    def __init__(self, trace: SegmentTrace, cls: type) -> None:
        self.cls = cls
        self.heap = _may_change(cls)
        self.found: dict[str, tuple[int, Any]] = {}
        # What ``super()`` finds for an instance, by the class that asks and the name.
        self.behind: dict[tuple[type, str], tuple[int, Any]] = {}
        local = issubclass(cls, threading.local)
        # C may keep attributes in a dict that it does not show: asyncio's tasks do.
        self.hides_dict = cls.__dictoffset__ != 0 and not local and raw_lookup(cls, "__dict__") is MISSING
        self.has_dict = local or (cls.__dictoffset__ != 0 and not self.hides_dict)
        _, self.getattribute = self.look(trace, "__getattribute__")
        owner = getattr(self.getattribute, "__objclass__", None)
        self.generic = owner is not None and owner.__module__ in GENERIC_MODULES and owner not in NOT_GENERIC and not self.hides_dict
        kind, g = self.look(trace, "__getattr__")
        self.getattr_fn = g if kind else None
        # One that is called in another way reads attributes its own way.
        self.generic = self.generic and (is_a(g, types.FunctionType) or not in_python(g))
        self.is_module = g is MODULE_GETATTR
        # Whether the class alone says how its instances' attributes are read. Most are of such: nothing more is asked of the type.
        self.ordinary = cls not in STANDING and _OTHERS.isdisjoint(TYPE_MRO.__get__(cls))
        self.setattr_fn: Any = MISSING

    def look(self, trace: SegmentTrace, name: str) -> tuple[int, Any]:
        """Returns (kind, descriptor) for a name in the MRO, and guards it."""
        entry = self.found.get(name)
        if entry is None:
            entry = self.found[name] = classify(trace, self.cls, name, self.heap)
        return entry

    def look_behind(self, trace: SegmentTrace, this: type, name: str) -> tuple[int, Any]:
        """Returns (kind, descriptor) for a name in the MRO after ``this``, and guards it."""
        entry = self.behind.get((this, name))
        if entry is None:
            guard_mro(trace, self.cls)
            mro = TYPE_MRO.__get__(self.cls)
            entry = ABSENT, None
            for cls in mro[[k is this for k in mro].index(True) + 1 :]:
                # If a class gets the name later, looking it up there finds something else than now.
                info = trace.types.get(cls)
                # Nothing else is asked of most of these classes: each `TypeInfo` would look up and guard three names.
                found = info.look(trace, name) if info is not None else classify(trace, cls, name, _may_change(cls))
                if name in TYPE_DICT.__get__(cls):
                    entry = found
                    break
            self.behind[this, name] = entry
        return entry

    def setter(self, trace: SegmentTrace) -> Any:
        if self.setattr_fn is MISSING:
            self.setattr_fn = self.look(trace, "__setattr__")[1]
        return self.setattr_fn


def raw_lookup(cls: type, name: str) -> Any:
    for k in TYPE_MRO.__get__(cls):
        d = TYPE_DICT.__get__(k)
        if name in d:
            return d[name]
    return MISSING


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
    descr = raw_lookup(cls, name)
    if heap and cls in trace.classes:
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
        if t.__flags__ & HEAP_TYPE and not is_a(descr, (type, Tensor, enum.Enum)):
            # The class may be assigned.
            trace.guards.check(src, "type", t)
            _guard_descriptor(trace, descr)
    return kind_of(descr), descr


def _guard_descriptor(trace: SegmentTrace, descr: Any) -> None:
    """Guards how something that a class holds behaves: it follows from the methods of its own class, which may change."""
    t = type(descr)
    if t.__flags__ & HEAP_TYPE and not is_a(descr, (type, Tensor, enum.Enum)):
        info = type_info(trace, t)
        for method in DESCRIPTOR_METHODS:
            info.look(trace, method)


def type_info(trace: SegmentTrace, cls: type) -> TypeInfo:
    info = trace.types.get(cls)
    if info is None:
        info = trace.types[cls] = TypeInfo(trace, cls)
    return info


def dict_of(obj: Any, info: TypeInfo) -> dict:
    """Returns ``obj.__dict__`` without calling the user's ``__getattribute__``."""
    return obj.__dict__ if info.generic else object.__getattribute__(obj, "__dict__")


def special_method(trace: SegmentTrace, t: type, name: str) -> Any:
    """Returns what Python finds under ``name`` in a class and its bases, guarded while something is captured."""
    return type_info(trace, t).look(trace, name)[1] if trace.active else raw_lookup(t, name)


def in_python(method: Any) -> bool:
    """Returns whether a special method, as it was found on a class, may run Python code: then it is no method of C's, but need not be a function."""
    t = type(method)
    if t in PYTHON_CALLABLES:
        return True
    return bool(t.__flags__ & HEAP_TYPE) and any([is_a(raw_lookup(t, name), types.FunctionType) for name in ("__get__", "__call__")])


def watches(trace: SegmentTrace, t: type) -> bool:
    """Returns whether the user's code sees every attribute that is read of an instance."""
    return bool(t.__flags__ & HEAP_TYPE) and is_a(type_info(trace, t).getattribute, types.FunctionType)


# What numbers say of themselves, whatever their value.
_PARTS: Mapping[tuple[type, str], Callable[[Any], Any]] = types.MappingProxyType(
    {
        (int, "real"): lambda n: n, (int, "imag"): lambda n: 0, (int, "numerator"): lambda n: n, (int, "denominator"): lambda n: 1,
        (float, "real"): lambda n: n, (float, "imag"): lambda n: 0.0, (int, "__class__"): lambda n: int, (float, "__class__"): lambda n: float,
    }
)  # fmt: skip
# Floats, which may be symbols where the complex number varies.
_COMPLEX_PARTS: Mapping[str, Any] = types.MappingProxyType({"real": vars(complex)["real"], "imag": vars(complex)["imag"]})
# What a frame tells that changes while it runs.
OF_FRAMES = ("f_lineno", "f_locals")


def load_attr(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None = None) -> Frame | None:
    """Pushes ``obj.name`` (or gives it to ``then``); -> a frame when user code has to run for it."""
    trace = interp.trace
    t = type(obj)
    if t is FakeTensor:
        t = Tensor
    if not trace.active:
        if t is types.FrameType and name in OF_FRAMES:
            return interp.call(f, protocols.of_frame, [obj, name], None, then)
        return interp.finish(f, getattr(obj, name), then)
    if trace.lazy and name not in OF_TYPE:
        if t is complex and name in _COMPLEX_PARTS and (src := trace.lazy.get(obj)) is not None:
            value = getattr(obj, name)
            return interp.finish(f, trace.read(value, trace.guards.access(src, "member", _COMPLEX_PARTS[name], value)), then)
        trace.settle(obj)
    info = trace.types.get(t)
    if info is None or not info.ordinary:
        if t in SYMBOLIC:
            part = _PARTS.get((STANDS_FOR[t], name))
            if part is not None:
                return interp.finish(f, part(obj), then)
            obj = settled(obj)
            t = type(obj)
        if is_a(obj, Tensor):
            attr = TENSOR_ATTRS.get(name)
            if attr is not None:
                value = interp.tensors.attribute(interp, obj, name, attr)
                return interp.finish(f, value, then)
        elif is_a(obj, OPERATOR_SPACES):
            # Operators are registered once; what they say of themselves does not change.
            return interp.finish(f, getattr(obj, name), then)
        elif is_a(obj, enum.Enum) and name in ENUM_NAMES and not is_a(getattr(t, name, None), property):
            return interp.finish(f, getattr(obj, name), then)
        elif is_a(obj, type):
            return load_class_attr(interp, f, obj, name, then)
        elif t is super:
            return load_super_attr(interp, f, obj, name, then)
        elif t in STANDING and name not in ITERATING:
            # It is for the iterator itself to say.
            raise GraphBreak(getattr, (obj, name), None, "FL410", f"{name} of a {STANDING[t].__name__}")
        info = trace.types.get(t)
        if info is None:
            info = type_info(trace, t)
    if not info.generic:
        fn = info.getattribute
        if is_a(fn, types.FunctionType):
            if info.getattr_fn is not None:
                return interp.call(f, protocols.getattribute_then_getattr, [obj, name, fn, info.getattr_fn], None, then)
            return interp.call(f, fn, [obj, name], None, then)
        raise GraphBreak(getattr, (obj, name), None, "FL431", f"reading .{name} of a {t.__name__}, which reads attributes its own way")
    return generic_load(interp, f, obj, name, info, then)


def generic_load(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, use_getattr: bool = True) -> Frame | None:
    trace = interp.trace
    entry = info.found.get(name)
    kind, descr = entry if entry is not None else info.look(trace, name)
    if name == "__dict__" and is_a(obj, threading.local):
        # Each thread's own, whatever the class has under that name.
        kind, descr = C_DATA, None
    # Whom C asks where an attribute is found on the class and then raises an AttributeError.
    asked = (info.getattr_fn, obj, name) if kind and use_getattr and info.getattr_fn is not None else None
    if PROPERTY <= kind <= PY_DATA:
        if kind == PROPERTY and descr.fget is None:
            if asked is not None:
                return interp.call(f, asked[0], [obj, name], None, then)
            return interp.finish(f, object.__getattribute__(obj, name), then)
        if kind != C_DATA:
            return bound(interp, f, kind, descr, obj, info.cls, then, asked)
        if type(obj) is types.FrameType and name in OF_FRAMES:
            return interp.call(f, protocols.of_frame, [obj, name], None, then)
        if name == "__dict__":
            d = dict_of(obj, info)
            if type(d) is dict and trace.dict_source(obj, d) is None and obj in trace.made:
                trace.made.add(d)
                trace.owners[d] = obj
            return interp.finish(f, d, then)
        if name == "__class__":
            return interp.finish(f, interp.type_of(obj), then)
        try:
            return interp.finish(f, read_member(interp, obj, descr, name), then)
        except AttributeError:
            if asked is None:
                raise
        return interp.call(f, asked[0], [obj, name], None, then)
    if info.has_dict:
        d = dict_of(obj, info)
        src = trace.dict_source(obj, d)
        value = d.get(name, MISSING)
        if value is not MISSING:
            return interp.finish(f, trace.read_key(d, src, name, value) if src is not None else value, then)
        if src is not None:
            trace.read_absent(d, src, name)
        if info.is_module and not kind:
            found = module_child(trace, d, src, name)
            if found is not MISSING:
                return interp.finish(f, found, then)
    if kind:
        return bound(interp, f, kind, descr, obj, info.cls, then, asked)
    if use_getattr and info.getattr_fn is not None:
        return interp.call(f, info.getattr_fn, [obj, name], None, then)
    if is_a(obj, types.MethodType):
        return load_attr(interp, f, read_member(interp, obj, METHOD_FUNC, "__func__"), name, then)
    if is_a(obj, types.ModuleType):
        fallback = d.get("__getattr__", MISSING)
        if fallback is not MISSING:
            return interp.call(f, trace.read_key(d, src, "__getattr__", fallback), [name], None, then)
        trace.read_absent(d, src, "__getattr__")
    return interp.finish(f, object.__getattribute__(obj, name) if not is_a(obj, types.ModuleType) else getattr(obj, name), then)


def module_child(trace: SegmentTrace, d: dict, src: Any, name: str) -> Any:
    """Returns a parameter, buffer or submodule of an nn.Module, found the way ``nn.Module.__getattr__`` finds it."""
    for table in ("_parameters", "_buffers", "_modules"):
        inner = d.get(table, MISSING)
        if inner is MISSING:
            continue
        if src is not None:
            trace.read_key(d, src, table, inner)
        inner_src = trace.sources.get(inner)
        value = inner.get(name, MISSING)
        if value is not MISSING:
            return trace.read_key(inner, inner_src, name, value)
        trace.read_absent(inner, inner_src, name)
    return MISSING


def read_member(interp: Interp, obj: Any, descr: Any, name: str) -> Any:
    """Returns a slot, or an attribute that C computes."""
    trace = interp.trace
    src = trace.sources.get(obj)
    try:
        value = descr.__get__(obj, type(obj))
    except AttributeError:
        if src is not None and not trace.mutations.slot_written(obj, descr):
            trace.guards.check(src, "predicate", (partial(member_is_empty, member_of(trace, obj, descr)), f"has no {name}"), id(descr))
        raise
    if obj in trace.mutations.seams and name == "tb_next":
        raise GraphBreak(getattr, (obj, name), None, "FL431", "reading the traceback of an exception that existed before the call")
    if src is None or trace.mutations.slot_written(obj, descr):
        return value
    if type(descr) is types.GetSetDescriptorType and (
        name == "__traceback__" or is_a(obj, (types.FrameType, types.CoroutineType, types.GeneratorType))
    ):
        raise GraphBreak(getattr, (obj, name), None, "FL431", f"reading .{name} of a {type(obj).__name__} that existed before the call")
    return trace.read(value, trace.guards.access(src, "member", member_of(trace, obj, descr), value))


def load_class_attr(interp: Interp, f: Frame, cls: type, name: str, then: Delivery | None) -> Frame | None:
    """Delivers ``cls.name`` for a class."""
    trace = interp.trace
    meta = type(cls)
    meta_info = type_info(trace, meta)
    if is_a(meta_info.getattribute, types.FunctionType):
        return interp.call(f, meta_info.getattribute, [cls, name], None, then)
    kind, descr = meta_info.look(trace, name)
    asked = (meta_info.getattr_fn, cls, name) if meta_info.getattr_fn is not None else None
    if PROPERTY <= kind <= PY_DATA:
        if kind != C_DATA:
            return bound(interp, f, kind, descr, cls, meta, then, asked)
        if name == "__dict__":
            if not cls.__flags__ & HEAP_TYPE or cls in trace.classes:
                raise GraphBreak(getattr, (cls, name), None, "FL431", "reading __dict__ of a class")
            # Its single names may be asked for.
            space = TYPE_DICT.__get__(cls)
            trace.adopt(space, trace.guards.access(trace.pin(cls, cls.__qualname__), "member", TYPE_DICT, space))
            return interp.finish(f, space, then)
        if cls.__flags__ & HEAP_TYPE:
            trace.pin(cls, cls.__qualname__)
        return interp.finish(f, read_member(interp, cls, descr, name), then)
    if is_a(cls, enum.EnumMeta):
        # EnumMeta finds members through its own __getattr__ or a descriptor; they never change once the class stands.
        member = cls.__dict__.get("_member_map_", {}).get(name)
        if member is not None and cls in trace.classes:
            members = type_info(trace, cls).look(trace, "_member_map_")[1]
            return interp.finish(f, trace.read_key(members, trace.sources.get(members), name, member), then)
        if member is not None:
            return interp.finish(f, member, then)
    own_kind, own = type_info(trace, cls).look(trace, name)
    if own_kind:
        return bound(interp, f, own_kind, own, None, cls, then, asked)
    if kind:
        return bound(interp, f, kind, descr, cls, meta, then, asked)
    if asked is not None:
        return interp.call(f, asked[0], [cls, name], None, then)
    return interp.finish(f, getattr(cls, name), then)


def load_super_attr(interp: Interp, f: Frame, sup: super, name: str, then: Delivery | None) -> Frame | None:
    """Delivers ``super().name``, found in the MRO after the class of the method."""
    trace = interp.trace
    this, obj, start = sup.__thisclass__, sup.__self__, sup.__self_class__  # type: ignore[attr-defined]
    if name == "__class__" or obj is None:
        return interp.finish(f, getattr(sup, name), then)
    kind, descr = type_info(trace, start).look_behind(trace, this, name)
    if kind == ABSENT:
        return interp.finish(f, getattr(sup, name), then)
    if is_a(obj, type) and obj is start and not is_a(obj, this):
        # In a class method: nothing is bound to an instance.
        obj = None
    elif kind == C_DATA:
        return interp.finish(f, read_member(interp, obj, descr, name), then)
    return bound(interp, f, kind, descr, obj, start, then)


def bound(
    interp: Interp, f: Frame, kind: int, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None
) -> Frame | None:
    """Delivers the value of a descriptor found on ``cls``, read through the instance ``obj``, or through the class itself if ``obj`` is None.

    ``asked``: a ``__getattr__`` with its arguments, to call if the descriptor raises an AttributeError.
    """
    if kind == METHOD and obj is not None:
        return interp.finish(f, types.MethodType(descr, obj), then)
    if kind == PROPERTY and obj is not None and descr.fget is not None:
        return _get(interp, f, descr.fget, [obj], asked, then)
    if kind == STATIC:
        return interp.finish(f, interp.class_value(descr.__func__), then)
    if kind == CLASS:
        return bind_class_method(interp, f, descr, cls, then)
    if kind in (PY_DATA, PY_OTHER):
        return _get(interp, f, type(descr).__get__, [descr, obj, cls], asked, then)
    if kind in (PROPERTY, C_DATA, C_OTHER):
        value = type(descr).__get__(descr, obj, cls)
        if kind == C_OTHER and type(value) not in C_BOUND:
            _note_bound(interp, value, descr, obj, cls)
        return interp.finish(f, value, then)
    return interp.finish(f, descr, then)


def _note_bound(interp: Interp, value: Any, descr: Any, obj: Any, cls: type) -> None:
    """Notes how a program gets a callable that a descriptor in C gave, as that of a function of Cython's does."""
    trace = interp.trace
    if type(value) is types.MethodType:
        # The function is as fixed as the class.
        interp.class_value(value.__func__)
    elif value is descr:
        interp.class_value(descr)
    elif trace.active and callable(value) and value not in trace.sources and not is_value(value):
        trace.bound[value] = (interp.class_value(descr), obj, cls)


def _get(interp: Interp, f: Frame, getter: Any, args: list, asked: tuple | None, then: Delivery | None) -> Frame | None:
    if asked is None:
        return interp.call(f, getter, args, None, then)
    return interp.call(f, protocols.get_then_getattr, [*asked, getter, *args], None, then)


def bind_class_method(interp: Interp, f: Frame, descr: classmethod, cls: type, then: Delivery | None) -> Frame | None:
    """Handles ``classmethod.__get__``; the wrapped object may be a descriptor itself, such as a property."""
    inner: Any = interp.class_value(descr.__func__)
    if is_a(inner, property):
        return interp.call(f, inner.fget, [cls], None, then)
    getter = raw_lookup(type(inner), "__get__")
    if is_a(getter, types.FunctionType):
        return interp.call(f, getter, [inner, cls, cls], None, then)
    if getter is MISSING:
        return interp.finish(f, types.MethodType(inner, cls), then)
    return interp.finish(f, inner.__get__(cls, cls), then)


def load_method(interp: Interp, f: Frame, obj: Any, name: str) -> Frame | None:
    """Handles LOAD_METHOD: pushes (function, self) or (NULL, attribute), which avoids the bound method."""
    trace = interp.trace
    t = type(obj)
    if t is FakeTensor:
        t = Tensor
    if trace.active and not is_a(obj, type) and t is not super and t not in STANDING:
        if trace.lazy and name not in OF_TYPE and obj not in trace.texts and t is not complex:
            # A text, or a complex number, is read by the call alone.
            trace.settle(obj)
        if t in SYMBOLIC:
            descr = raw_lookup(STANDS_FOR[t], name)
            if type(descr) is types.MethodDescriptorType:
                # The call asks for the value.
                f.stack += (descr, obj)
                return None
            obj = settled(obj)
            t = type(obj)
        info = trace.types.get(t)
        if info is None:
            info = type_info(trace, t)
        if info.generic:
            entry = info.found.get(name)
            kind, descr = entry if entry is not None else info.look(trace, name)
            if kind == METHOD or (kind == C_OTHER and type(descr) is types.MethodDescriptorType):
                if info.has_dict:
                    d = dict_of(obj, info)
                    if name in d:
                        f.stack.append(NULL)
                        return load_attr(interp, f, obj, name)
                    if type(obj) is FakeTensor:
                        pass
                    elif not is_a(obj, Tensor) or d:
                        trace.read_absent(d, trace.dict_source(obj, d), name)
                    elif obj in trace.sources and d not in trace.mutations.written:
                        # One guard for all methods: the tensor has no attributes of its own.
                        table = trace.dict_source(obj, d)
                        assert table is not None
                        trace.guards.check(table, "len", 0)
                f.stack.append(descr)
                f.stack.append(obj)
                return None
    f.stack.append(NULL)
    return load_attr(interp, f, obj, name)
