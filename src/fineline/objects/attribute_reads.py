"""Attribute reads, as `object.__getattribute__` and similar functions do them, with guards on all that they read.

The order in which Python searches is data: a tuple of loaders, each of which delivers the attribute, or returns `NEXT` if it does not apply.
`OF_CLASSES` lists the kinds of objects that are not read as `object` reads them. `LOADERS` lists the places where `object` searches, by the
kind of the class's attribute with the name; `CLASS_LOADERS` does so for reads on a class. `BINDERS` binds the attribute of the class.
"""

from __future__ import annotations

import enum
import threading
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.backends.cuda import SDPAParams
from torch.utils.hooks import RemovableHandle

from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.cpython.numpy_scalars import OF_TYPE
from fineline.cpython.protocols import method_of
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.stub_frames import is_of_modules
from fineline.kinds import is_a, is_users_class, is_wrapper_class
from fineline.numpy_support import np
from fineline.objects.carried_iterators import STANDING
from fineline.objects.hook_order import guard_order
from fineline.objects.iterator_stand_ins import ITERATOR_STAND_INS, KINDS
from fineline.objects.type_info import (
    ABSENT,
    C_DATA,
    C_METHOD_TYPES,
    C_OTHER,
    CLASS,
    METHOD,
    MISSING,
    OPERATOR_SPACES,
    PLAIN,
    PROPERTY,
    PY_DATA,
    PY_OTHER,
    STATIC,
    TYPE_DICT,
    TypeInfo,
    dict_of,
    raw_lookup,
    space_of,
    type_info,
)
from fineline.symbolic.arithmetic import SYMBOLIC, settled
from fineline.torch_facts.callables import TENSOR_ATTRS
from fineline.torch_facts.distributed_tensors import PLACEMENT, is_distributed, is_placement
from fineline.torch_facts.names import OF_FAKES
from fineline.torch_facts.wrapper_subclasses import stands_for_lengths
from fineline.tracing.identity_guards import member_is_empty
from fineline.tracing.interp import Interp
from fineline.tracing.local_classes import ENUM_ITEMS, member_of
from fineline.tracing.plain_values import PLAIN_TENSORS, is_value
from fineline.tracing.segment_trace import SegmentTrace

ENUM_NAMES = ("value", "name", "_value_", "_name_")
# The types of bound C methods: they know their object, and a lookup of their name on it finds them again.
C_BOUND = (types.BuiltinFunctionType, types.MethodWrapperType, *C_METHOD_TYPES)
# The types of the numbers that symbols stand for.
STANDS_FOR: Mapping[type, type] = types.MappingProxyType({torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool})
# The attributes that a stand-in for a C iterator implements itself.
ITERATING = frozenset({"__next__", "__iter__", "__class__"})
METHOD_FUNC = types.MethodType.__dict__["__func__"]
# Attributes of numbers that do not depend on the value, or are the number itself.
_PARTS: Mapping[tuple[type, str], Callable[[Any], Any]] = types.MappingProxyType(
    {
        (int, "real"): lambda n: n, (int, "imag"): lambda n: 0, (int, "numerator"): lambda n: n, (int, "denominator"): lambda n: 1,
        (float, "real"): lambda n: n, (float, "imag"): lambda n: 0.0, (int, "__class__"): lambda n: int, (float, "__class__"): lambda n: float,
    }
)  # fmt: skip
# The parts of a complex number that varies: floats, which may be symbols.
_COMPLEX_PARTS: Mapping[str, Any] = types.MappingProxyType({"real": vars(complex)["real"], "imag": vars(complex)["imag"]})
# Attributes of a frame that change while it runs.
OF_FRAMES = ("f_lineno", "f_locals")


class Next(enum.Enum):
    """The result of a loader that does not apply: the next one is tried."""

    NEXT = "next"


NEXT: Final = Next.NEXT
Loaded: TypeAlias = Frame | Next | None
# The call of a loader by `load_attr`. The last argument is the ``__getattr__`` to call if nothing is found or a descriptor raises.
Load: TypeAlias = Callable[[Interp, Frame, Any, str, TypeInfo, Delivery | None, Any], Loaded]


def load_attr(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None = None) -> Frame | None:
    """Pushes ``obj.name`` (or delivers it to ``then``); returns a frame if user code has to run for it."""
    trace = interp.trace
    t = type(obj)
    if t is FakeTensor:
        if name in OF_FAKES:
            raise GraphBreak(getattr, (obj, name), None, "FL507", f".{name} of a tensor made in the captured code")
        t = Tensor
    if not trace.active:
        if t is types.FrameType and name in OF_FRAMES:
            return interp.call(f, protocols.of_frame, [obj, name], None, then)
        if t in ITERATOR_STAND_INS and _is_of_iterator(t, name):
            # Beyond the limit of recompiles, code after a graph break has stand-ins and captures nothing.
            raise _read_natively(obj, name)
        return interp.finish(f, getattr(obj, name), then)
    if trace.deferred.numbers and name not in OF_TYPE:
        if t is complex and name in _COMPLEX_PARTS and (src := trace.deferred.numbers.get(obj)) is not None:
            value = getattr(obj, name)
            return interp.finish(f, trace.read(value, trace.guards.access(src, "member", _COMPLEX_PARTS[name], value)), then)
        trace.deferred.settle(obj)
    info = trace.namespaces.types.get(t)
    if info is None or not info.ordinary:
        for cls, special in OF_CLASSES:
            if is_a(obj, cls):
                frame = special(interp, f, obj, name, then)
                if frame is not NEXT:
                    return frame
        if info is None:
            info = type_info(trace, t)
    for load in info.loaders.get(name) or loaders_of(trace, info, name):
        frame = load(interp, f, obj, name, info, then, info.getattr_fn)
        if frame is not NEXT:
            return frame
    return absent(interp, f, obj, name, info, then)


def load_without_getattr(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None) -> Frame | None:
    """Delivers an attribute without a call of the class's own ``__getattr__``; that of `nn.Module` is applied."""
    kind, _ = info.look(interp.trace, name)
    return _first(_BY_NAME.get(name, _BY_KIND)[kind], interp, f, obj, name, info, then)


def load_as_object(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None) -> Frame | None:
    """Delivers an attribute as ``object.__getattribute__`` does, without a search by any ``__getattr__``, even that of `nn.Module`."""
    kind, _ = info.look(interp.trace, name)
    loaders = [load for load in _BY_NAME.get(name, _BY_KIND)[kind] if load is not in_module]
    return _first(loaders, interp, f, obj, name, info, then)


def _first(loaders: Iterable[Load], interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None) -> Frame | None:
    for load in loaders:
        frame = load(interp, f, obj, name, info, then, None)
        if frame is not NEXT:
            return frame
    return absent(interp, f, obj, name, info, then)


# -- objects that are not read as `object` reads them ------------------------------------------------------------------
def of_number(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles a symbol: an attribute that all numbers of its type share, or one that depends on the number, which is then specialized."""
    part = _PARTS.get((STANDS_FOR[type(obj)], name))
    if part is not None and not stands_for_lengths(obj):
        return interp.finish(f, part(obj), then)
    number = settled(obj)
    return load_without_getattr(interp, f, number, name, type_info(interp.trace, type(number)), then)


def of_tensor(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles the attributes that every tensor has. Attributes stored on the tensor or its class are read as `object` reads them."""
    attr = TENSOR_ATTRS.get(name)
    if attr is not None and ((name == "__dict__" and type(obj) is not FakeTensor and not is_wrapper_class(type(obj))) or replaces(type(obj), name)):
        # No ``__torch_function__`` sees that the dict of an object is read, which Python keeps. That of a fake holds the fake's own attributes.
        return NEXT
    if attr is None and name == "_spec" and is_distributed(obj) and obj not in interp.trace.sources:
        raise GraphBreak(getattr, (obj, name), None, "FL507", "._spec of a DTensor made in the captured code")
    return NEXT if attr is None else interp.tensors.load_attribute(interp, f, obj, name, attr, then)


def replaces(cls: type[Tensor], name: str) -> bool:
    """Returns whether a tensor's class has another attribute of this name, for example a property, in place of the one that C computes."""
    return cls not in PLAIN_TENSORS and raw_lookup(cls, name) is not raw_lookup(Tensor, name)


def of_operator(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles operators and their namespaces, whose attributes never change after registration."""
    return interp.finish(f, getattr(obj, name), then)


def of_enum_member(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles the name and the value of a member, which never change, unless the class defines properties with these names."""
    if name not in ENUM_NAMES or is_a(getattr(type(obj), name, None), property):
        return NEXT
    value, trace = getattr(obj, name), interp.trace
    if not is_value(value) and type(obj) not in trace.classes.made:
        # The member keeps it, but what it contains may change, as may the other places where it is read.
        owner = trace.sources.get(obj) or trace.pin(obj, f"{type(obj).__qualname__}.{obj._name_}")
        trace.load(value, trace.guards.access(owner, "member", ENUM_ITEMS[1], value))
    return interp.finish(f, value, then)


def of_class(interp: Interp, f: Frame, cls: type, name: str, then: Delivery | None) -> Loaded:
    """Handles a class, which is read as `type.__getattribute__` reads it: by the loaders in `CLASS_LOADERS`, in order."""
    info = type_info(interp.trace, type(cls))
    for load in CLASS_LOADERS:
        frame = load(interp, f, cls, name, info, then)
        if frame is not NEXT:
            return frame
    return interp.finish(f, getattr(cls, name), then)


def of_super(interp: Interp, f: Frame, sup: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles ``super().name``, found in the MRO after the class of the method."""
    if type(sup) is not super:
        return NEXT
    trace = interp.trace
    this, obj, start = sup.__thisclass__, sup.__self__, sup.__self_class__  # type: ignore[attr-defined]
    if name == "__class__" or obj is None:
        return interp.finish(f, getattr(sup, name), then)
    kind, descr = type_info(trace, start).look_after(trace, this, name)
    if kind == ABSENT:
        return interp.finish(f, getattr(sup, name), then)
    if is_a(obj, type) and obj is start and not is_a(obj, this):
        # In a class method: no instance to bind to.
        obj = None
    elif kind == C_DATA and is_a(obj, Tensor) and name in TENSOR_ATTRS and descr is raw_lookup(Tensor, name):
        if replaces(type(obj), name):
            raise GraphBreak(descr.__get__, (obj,), None, "FL507", f".{name} of a {type(obj).__name__} in place of the one that the class has")
        return interp.tensors.load_attribute(interp, f, obj, name, TENSOR_ATTRS[name], then)
    elif kind == C_DATA:
        return interp.finish(f, read_member(interp, obj, descr, name), then)
    return BINDERS[kind](interp, f, descr, obj, start, then)


def of_placement(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles a placement of a `DTensor`, which has no attributes but those of its class: properties in C, which never change, and methods."""
    if not is_placement(obj):
        return NEXT
    raw = raw_lookup(type(obj), name)
    if is_a(raw, property) or is_a(getattr(raw, "__func__", None), types.BuiltinFunctionType):
        return interp.finish(f, getattr(obj, name), then)
    kind, descr = type_info(interp.trace, type(obj)).look(interp.trace, name)
    return BINDERS[kind](interp, f, descr, obj, type(obj), then) if kind in _HIDDEN else NEXT


def of_attention_params(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles the properties of an `SDPAParams` that the segment has made: C gives what it holds, which never changes."""
    held = obj in interp.trace.made and is_a(raw_lookup(type(obj), name), property)
    return interp.finish(f, getattr(obj, name), then) if held else NEXT


def of_array(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles the attributes of an array that is a part of the graph, which a stand-in replaces, and of one that may become a part."""
    value = interp.tensors.array_attribute(interp, obj, name)
    return NEXT if value is NotImplemented else interp.finish(f, value, then)


def of_hook_handle(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Loaded:
    """Handles the handle of a hook that the segment has registered: only its methods are the same at each call."""
    hooks = interp.trace.mutations.hooks
    if type(obj) is not RemovableHandle or not (obj in hooks.by_handle or (obj in hooks.of_modules and not is_of_modules(f.info.code))):
        return NEXT
    kind, method = type_info(interp.trace, RemovableHandle).look(interp.trace, name)
    if kind == METHOD:
        return BINDERS[kind](interp, f, method, obj, RemovableHandle, then)
    raise GraphBreak(getattr, (obj, name), None, "FL507", f".{name} of a hook's handle")


OF_CLASSES: tuple[tuple[type | tuple[type, ...], Callable[[Interp, Frame, Any, str, Delivery | None], Loaded]], ...] = (
    (tuple(SYMBOLIC), of_number),
    (Tensor, of_tensor),
    (OPERATOR_SPACES, of_operator),
    (SDPAParams, of_attention_params),
    (enum.Enum, of_enum_member),
    (type, of_class),
    (super, of_super),
    (np.ndarray, of_array),
    (PLACEMENT, of_placement),
    (RemovableHandle, of_hook_handle),
)


# -- objects whose class decides how they are read ---------------------------------------------------------------------
def of_iterator(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a stand-in for an iterator of C: the iterator itself is read, in an eager call."""
    raise _read_natively(obj, name)


def _read_natively(obj: Any, name: str) -> GraphBreak:
    return GraphBreak(getattr, (obj, name), None, "FL410", f"{KINDS[type(obj)].__name__}.{name} of an iterator that the captured code has made")


def python_getattribute(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a class with a ``__getattribute__`` in Python, which runs at every read, and the ``__getattr__`` that is tried after it."""
    fn = info.getattribute
    if not is_a(fn, types.FunctionType):
        return NEXT
    if fallback is not None:
        return interp.call(f, protocols.getattribute_then_getattr, [obj, name, fn, fallback], None, then)
    return interp.call(f, fn, [obj, name], None, then)


def c_getattribute(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Breaks the graph at a class from C, or with a ``__getattribute__`` that is not a function: fineline does not know its reads."""
    raise GraphBreak(getattr, (obj, name), None, "FL431", f"reading .{name} of a {info.cls.__name__}, which reads attributes its own way")


def _show_hooks(trace: SegmentTrace, obj: Any, name: str, found: Iterable[Any]) -> None:
    """Breaks the graph where code other than PyTorch's reads a dict of hooks with one that the segment has registered: each call has another number."""
    if any([trace.mutations.hooks.show(hooks) for hooks in found if type(hooks) is OrderedDict]):
        text = f".{name} of a {type(obj).__name__}, with the number of a hook that the graph registers"
        raise GraphBreak(getattr, (obj, name), None, "FL507", text)


def own_dict(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles ``obj.__dict__``, and the current thread's dict of a `threading.local`, whatever its class defines under that name."""
    if info.found[name][0] != C_DATA and not is_a(obj, threading.local):
        return NEXT
    trace = interp.trace
    d = dict_of(obj, info)
    if trace.namespaces.shadows is not None:
        trace.expose(d)
    if trace.active and is_a(obj, nn.Module) and not is_of_modules(f.info.code):
        _show_hooks(trace, obj, name, d.values())
    if type(d) is dict and trace.dict_source(obj, d) is None and (obj in trace.made or is_a(obj, Tensor)):
        trace.made.add(d)
        trace.namespaces.owners[d] = obj
    return interp.finish(f, d, then)


def data_descriptor(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a property, or another Python descriptor with ``__set__`` or ``__delete__``: it takes precedence over the instance's dict."""
    kind, descr = info.found[name]
    if kind == PROPERTY and descr.fget is None:
        return absent(interp, f, obj, name, info, then) if fallback is None else interp.call(f, fallback, [obj, name], None, then)
    return BINDERS[kind](interp, f, descr, obj, info.cls, then, (fallback, obj, name) if fallback is not None else None)


def of_frame(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles the attributes of a frame that change while it runs, and all of a frame that the code has asked for."""
    handled = type(obj) is types.FrameType and (name in OF_FRAMES or obj in interp.trace.functions.frames)
    return interp.call(f, protocols.of_frame, [obj, name], None, then) if handled else NEXT


def own_class(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles ``obj.__class__``; for a stand-in, returns the class that it stands for."""
    return interp.finish(f, interp.type_of(obj), then)


def member(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a slot, or an attribute that C computes."""
    try:
        value = read_member(interp, obj, info.found[name][1], name)
    except AttributeError:
        pass
    else:
        return interp.finish(f, value, then)
    return absent(interp, f, obj, name, info, then) if fallback is None else interp.call(f, fallback, [obj, name], None, then)


def in_instance(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles an entry of the instance's own dict."""
    if not info.has_dict:
        return NEXT
    trace = interp.trace
    # The most frequent read: it saves the calls of `dict_of` and, for a result on the stack, of `finish`.
    d = obj.__dict__ if info.generic else object.__getattribute__(obj, "__dict__")
    if trace.namespaces.shadows is not None:
        d = trace.namespaces.shadows.get(d, d)
    src = trace.dict_source(obj, d)
    value = d.get(name, MISSING)
    if value is not MISSING:
        if src is not None:
            value = trace.read_key(d, src, name, value)
        elif type(value) is FakeTensor:
            # An operator may have given its result an inner tensor of an argument.
            value = interp.backing.outside(value)
        if type(value) is OrderedDict and trace.active:
            if not is_of_modules(f.info.code):
                _show_hooks(trace, obj, name, (value,))
            elif src is not None and (value or value in trace.containers.ordered):
                guard_order(interp, d, src, value)
        if then is not None:
            return interp.finish(f, value, then)
        f.stack.append(value)
        return None
    if src is not None:
        trace.read_absent(d, src, name)
    return NEXT


def in_class(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles an attribute of the class: a method, another descriptor without ``__set__``, or any value."""
    if obj is None:
        # To the ``__get__`` of a descriptor, None is no object.
        return interp.finish(f, getattr(obj, name), then)
    kind, descr = info.found[name]
    return BINDERS[kind](interp, f, descr, obj, info.cls, then, (fallback, obj, name) if fallback is not None else None)


def in_module(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a parameter, buffer or submodule, with the search of ``nn.Module.__getattr__``."""
    if not info.is_module:
        return NEXT
    trace = interp.trace
    d = space_of(trace, obj, info)
    # `in_instance` has read and guarded this dict before.
    src = trace.sources.get(d)
    for table in ("_parameters", "_buffers", "_modules"):
        inner = d.get(table, MISSING)
        if inner is MISSING:
            continue
        if src is not None:
            trace.read_key(d, src, table, inner)
        inner_src = trace.sources.get(inner)
        value = inner.get(name, MISSING)
        if value is not MISSING:
            return interp.finish(f, trace.read_key(inner, inner_src, name, value), then)
        trace.read_absent(inner, inner_src, name)
    return NEXT


def python_getattr(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles a class with a ``__getattr__``."""
    return NEXT if fallback is None else interp.call(f, fallback, [obj, name], None, then)


def in_method(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles an attribute of a bound method that its function has."""
    if not is_a(obj, types.MethodType):
        return NEXT
    return load_attr(interp, f, read_member(interp, obj, METHOD_FUNC, "__func__"), name, then)


def module_getattr(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None, fallback: Any) -> Loaded:
    """Handles the ``__getattr__`` among the globals of a Python module."""
    if not is_a(obj, types.ModuleType):
        return NEXT
    trace, d = interp.trace, dict_of(obj, info)
    src = trace.dict_source(obj, d)
    found = d.get("__getattr__", MISSING)
    if found is not MISSING:
        return interp.call(f, trace.read_key(d, src, "__getattr__", found), [name], None, then)
    trace.read_absent(d, src, "__getattr__")
    return NEXT


def absent(interp: Interp, f: Frame, obj: Any, name: str, info: TypeInfo, then: Delivery | None) -> Frame | None:
    """Lets C raise the AttributeError for an attribute that no loader found; `getattr` adds the object to it."""
    read = getattr if info.generic and info.getattr_fn is None else object.__getattribute__
    return interp.finish(f, read(obj, name), then)


class Loader(NamedTuple):
    """One place that `object.__getattribute__` searches, with the kinds of class attributes and the names for which it applies."""

    load: Load
    kinds: tuple[int, ...]
    # None: it applies to all names.
    names: tuple[str, ...] | None = None


_HIDDEN = (METHOD, STATIC, CLASS, C_OTHER, PY_OTHER, PLAIN)
LOADERS: tuple[Loader, ...] = (
    Loader(own_dict, tuple(range(PLAIN + 1)), ("__dict__",)),
    Loader(data_descriptor, (PROPERTY, PY_DATA)),
    Loader(of_frame, (C_DATA,), tuple([name for name in vars(types.FrameType) if name.startswith("f_")])),
    Loader(own_class, (C_DATA,), ("__class__",)),
    Loader(member, (C_DATA,)),
    Loader(in_instance, (ABSENT, *_HIDDEN)),
    Loader(in_class, _HIDDEN),
    Loader(in_module, (ABSENT,)),
    Loader(python_getattr, (ABSENT,)),
    Loader(in_method, (ABSENT,)),
    Loader(module_getattr, (ABSENT,)),
)
# The loaders by kind; and, for names with loaders of their own, by name and kind.
_BY_KIND = tuple([tuple([at.load for at in LOADERS if kind in at.kinds and at.names is None]) for kind in range(PLAIN + 1)])
_BY_NAME = types.MappingProxyType(
    {
        name: tuple([tuple([at.load for at in LOADERS if kind in at.kinds and name in (at.names or (name,))]) for kind in range(PLAIN + 1)])
        for name in {name for at in LOADERS for name in at.names or ()}
    }
)
_NOT_GENERIC = (python_getattribute, c_getattribute)


def _is_of_iterator(stand_in: type, name: str) -> bool:
    """Returns whether an attribute is read from the iterator for which an object of this class stands: the class has what an iteration needs alone."""
    if name in ITERATING or stand_in not in ITERATOR_STAND_INS:
        return False
    # Those that are not carried over a graph break are run as Python code, which reads attributes of their own.
    return stand_in in STANDING or name in vars(KINDS[stand_in])


def loaders_of(trace: SegmentTrace, info: TypeInfo, name: str) -> tuple[Load, ...]:
    """Returns the loaders that read an attribute of a class's instances, and stores them in ``info``."""
    if _is_of_iterator(info.cls, name):
        found: tuple[Load, ...] = (of_iterator,)
    elif info.generic:
        kind, _ = info.look(trace, name)
        found = _BY_NAME[name][kind] if name in _BY_NAME else _BY_KIND[kind]
    else:
        found = _NOT_GENERIC
    info.loaders[name] = found
    return found


def read_member(interp: Interp, obj: Any, descr: Any, name: str) -> Any:
    """Returns the value of a slot, or of an attribute that C computes, with a guard."""
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


# -- attributes of a class ---------------------------------------------------------------------------------------------
def by_metaclass(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles a metaclass with a ``__getattribute__`` in Python, which sees every read."""
    return interp.call(f, meta.getattribute, [cls, name], None, then) if is_a(meta.getattribute, types.FunctionType) else NEXT


def data_of_metaclass(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles a metaclass's descriptor that takes precedence over the class: a property, or an attribute that C computes."""
    trace = interp.trace
    kind, descr = meta.look(trace, name)
    if not PROPERTY <= kind <= PY_DATA:
        return NEXT
    if kind != C_DATA:
        return BINDERS[kind](interp, f, descr, cls, meta.cls, then, _asked(meta, cls, name))
    if name == "__dict__" and cls in trace.classes.made:
        return interp.finish(f, trace.classes.part(cls, TYPE_DICT.__get__(cls), ".__dict__"), then)
    if name == "__dict__":
        if not is_users_class(cls) or cls in trace.classes.local:
            raise GraphBreak(getattr, (cls, name), None, "FL431", "reading __dict__ of a class")
        # Code may look up single names in it.
        space = TYPE_DICT.__get__(cls)
        trace.adopt(space, trace.guards.access(trace.pin(cls, cls.__qualname__), "member", TYPE_DICT, space))
        return interp.finish(f, space, then)
    if is_users_class(cls) and cls not in trace.classes.made:
        trace.pin(cls, cls.__qualname__)
    return interp.finish(f, read_member(interp, cls, descr, name), then)


def enum_member(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles a member of an enumeration, for which `EnumMeta` has its own lookup, and which never changes after the class is created."""
    if not is_a(cls, enum.EnumMeta):
        return NEXT
    trace = interp.trace
    found = cls.__dict__.get("_member_map_", {}).get(name)
    if found is None:
        return NEXT
    if cls in trace.classes.local:
        members = type_info(trace, cls).look(trace, "_member_map_")[1]
        found = trace.read_key(members, trace.sources.get(members), name, found)
    return interp.finish(f, found, then)


def in_bases(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles an attribute of the class or one of its bases."""
    kind, descr = type_info(interp.trace, cls).look(interp.trace, name)
    return BINDERS[kind](interp, f, descr, None, cls, then, _asked(meta, cls, name)) if kind else NEXT


def in_metaclass(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles an attribute of the metaclass: a method, or any value."""
    kind, descr = meta.look(interp.trace, name)
    return BINDERS[kind](interp, f, descr, cls, meta.cls, then, _asked(meta, cls, name)) if kind else NEXT


def metaclass_getattr(interp: Interp, f: Frame, cls: type, name: str, meta: TypeInfo, then: Delivery | None) -> Loaded:
    """Handles a metaclass with a ``__getattr__``."""
    return NEXT if meta.getattr_fn is None else interp.call(f, meta.getattr_fn, [cls, name], None, then)


def _asked(meta: TypeInfo, cls: type, name: str) -> tuple | None:
    return None if meta.getattr_fn is None else (meta.getattr_fn, cls, name)


CLASS_LOADERS: tuple[Callable[[Interp, Frame, type, str, TypeInfo, Delivery | None], Loaded], ...] = (
    by_metaclass, data_of_metaclass, enum_member, in_bases, in_metaclass, metaclass_getattr,
)  # fmt: skip


# -- binding the attribute of a class ----------------------------------------------------------------------------------
def bind_method(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Binds a function to the object; a read through the class delivers the function itself."""
    return interp.finish(f, descr if obj is None else types.MethodType(descr, obj), then)


def get_property(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Calls the getter of a property; a read through the class delivers the property itself."""
    if obj is None or descr.fget is None:
        return interp.finish(f, type(descr).__get__(descr, obj, cls), then)
    return _get(interp, f, descr.fget, [obj], asked, then)


def get_static(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Delivers the function of a static method."""
    return interp.finish(f, interp.class_value(descr.__func__), then)


def bind_class_method(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Binds a class method to the class; up to Python 3.12, the object that it wraps may be a descriptor itself, such as a property."""
    inner: Any = interp.class_value(descr.__func__)
    if not CURRENT.class_methods_bind:
        return interp.finish(f, method_of(inner, cls), then)
    if is_a(inner, property):
        return interp.call(f, inner.fget, [cls], None, then)
    getter = raw_lookup(type(inner), "__get__")
    if is_a(getter, types.FunctionType):
        return interp.call(f, getter, [inner, cls, cls], None, then)
    if getter is MISSING:
        return interp.finish(f, types.MethodType(inner, cls), then)
    return interp.finish(f, inner.__get__(cls, cls), then)


def get_by_python(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Calls the ``__get__`` of a descriptor written in Python."""
    return _get(interp, f, type(descr).__get__, [descr, obj, cls], asked, then)


def get_by_c(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Lets C bind one of its methods."""
    if "partials" in CURRENT.warns_of and is_a(descr, partial) and obj is not None and interp.trace.active:
        raise GraphBreak(raw_lookup(type(descr), "__get__"), (descr, obj, cls), None, "FL437", "a functools.partial in a class, about which Python warns")
    value = type(descr).__get__(descr, obj, cls)
    if type(value) not in C_BOUND:
        _note_bound(interp, value, descr, obj, cls)
    return interp.finish(f, value, then)


def get_c_data(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Lets C compute an attribute; a read through the class delivers the descriptor itself."""
    return interp.finish(f, type(descr).__get__(descr, obj, cls), then)


def give(interp: Interp, f: Frame, descr: Any, obj: Any, cls: type, then: Delivery | None, asked: tuple | None = None) -> Frame | None:
    """Delivers a value that is not a descriptor."""
    return interp.finish(f, descr, then)


# The functions that bind an attribute of ``cls``, by its kind. It is read through the instance ``obj``, or through the class if that is None.
# ``asked``: a ``__getattr__`` with its arguments, to call if the descriptor raises an AttributeError.
BINDERS: Mapping[int, Callable[..., Frame | None]] = types.MappingProxyType(
    {
        PROPERTY: get_property, C_DATA: get_c_data, PY_DATA: get_by_python, METHOD: bind_method, STATIC: get_static, CLASS: bind_class_method,
        C_OTHER: get_by_c, PY_OTHER: get_by_python, PLAIN: give,
    }
)  # fmt: skip


def _note_bound(interp: Interp, value: Any, descr: Any, obj: Any, cls: type) -> None:
    """Notes how a program creates a callable that a C descriptor returned, such as the bound form of a Cython function."""
    trace = interp.trace
    if type(value) is types.MethodType:
        # The function cannot change as long as the class does not.
        interp.class_value(value.__func__)
    elif value is descr:
        interp.class_value(descr)
    elif trace.active and callable(value) and value not in trace.sources and not is_value(value):
        trace.namespaces.bound[value] = (interp.class_value(descr), obj, cls)


def _get(interp: Interp, f: Frame, getter: Any, args: list, asked: tuple | None, then: Delivery | None) -> Frame | None:
    if asked is None:
        return interp.call(f, getter, args, None, then)
    return interp.call(f, protocols.get_then_getattr, [*asked, getter, *args], None, then)


def load_method(interp: Interp, f: Frame, obj: Any, name: str) -> Frame | None:
    """Handles LOAD_METHOD: pushes (function, self) or (NULL, attribute), which avoids the bound method."""
    trace = interp.trace
    t = type(obj)
    if t is FakeTensor:
        t = Tensor
    if trace.active and not is_a(obj, type) and t is not super and t is not RemovableHandle and not (t in ITERATOR_STAND_INS and _is_of_iterator(t, name)):
        if trace.deferred.numbers and name not in OF_TYPE and obj not in trace.deferred.texts and t is not complex:
            # For a text or a complex number, only the call reads the value.
            trace.deferred.settle(obj)
        if t in SYMBOLIC and not stands_for_lengths(obj):
            descr = raw_lookup(STANDS_FOR[t], name)
            if type(descr) is types.MethodDescriptorType:
                # The call reads the value.
                f.stack += (descr, obj)
                return None
            obj = settled(obj)
            t = type(obj)
        info = trace.namespaces.types.get(t)
        if info is None:
            info = type_info(trace, t)
        if info.generic:
            entry = info.found.get(name)
            kind, descr = entry if entry is not None else info.look(trace, name)
            if kind == METHOD or (kind == C_OTHER and type(descr) is types.MethodDescriptorType):
                if info.has_dict:
                    d = space_of(trace, obj, info)
                    if name in d:
                        f.stack.append(NULL)
                        return load_attr(interp, f, obj, name)
                    if type(obj) is FakeTensor:
                        pass
                    elif not is_a(obj, Tensor) or d:
                        trace.read_absent(d, trace.dict_source(obj, d), name)
                    elif obj in trace.sources and d not in trace.mutations.written:
                        # One guard covers all methods: the tensor has no attributes of its own.
                        table = trace.dict_source(obj, d)
                        assert table is not None
                        trace.guards.check(table, "len", 0)
                f.stack.append(descr)
                f.stack.append(obj)
                return None
    f.stack.append(NULL)
    return load_attr(interp, f, obj, name)
