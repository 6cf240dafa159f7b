"""Callables that the interpreter answers itself: introspection, iteration, attribute functions."""

from __future__ import annotations

import abc
import builtins
import collections
import copy
import enum
import functools
import inspect
import sys
import types
import typing
import weakref
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from fineline.capture import natives, protocols
from fineline.capture.attributes import (
    MISSING,
    PLAIN,
    PROPERTY,
    PY_DATA,
    PY_OTHER,
    STATIC,
    delete_attr,
    generic_delete,
    generic_load,
    generic_store,
    load_attr,
    raw_lookup,
    store_attr,
    type_info,
)
from fineline.capture.capture import HEAP_TYPE, NULL, PINNED, SINGLETONS, VALUES, is_value
from fineline.capture.frame import Frame, InterpretedGenerator
from fineline.capture.signals import Border
from fineline.capture.watch import IsInstance, guard_mro, guard_subclass

# Metaclasses whose __instancecheck__ answers from the classes alone.
STATIC_CHECKS = (
    abc.ABCMeta,
    type(nn.Parameter),
    enum.EnumMeta,
    type(typing.Protocol),
    type(torch.autograd.Function),
    type(torch.nn.Buffer),
)


def answer(vm: Any, f: Frame, value: Any, then: Any, data: Any) -> Frame | None:
    return vm.finish(f, value, then, data)


def _getattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) not in (2, 3) or kwargs or not isinstance(args[1], str):
        return answer(vm, f, getattr(*args, **(kwargs or {})), then, data)
    if not vm.cap.active:
        return answer(vm, f, getattr(*args), then, data)
    if len(args) == 2:
        return load_attr(vm, f, args[0], args[1], then, data)
    obj, name, default = args
    if _simple(vm, obj, name):
        # The common case without a frame: nothing of the user's runs, so AttributeError comes from this very call.
        try:
            if isinstance(obj, nn.Module):
                return generic_load(vm, f, obj, name, type_info(vm.cap, type(obj)), then, data, use_getattr=False)
            return load_attr(vm, f, obj, name, then, data)
        except AttributeError:
            return answer(vm, f, default, then, data)
    return vm.call(f, protocols.attribute_or, [builtins.getattr, obj, name, default], None, then, data)


def _simple(vm: Any, obj: Any, name: str) -> bool:
    """Whether reading a missing attribute of ``obj`` runs no code that fails only later."""
    if isinstance(obj, (type, types.ModuleType, super)):
        return isinstance(obj, types.ModuleType) and type(obj) is types.ModuleType and "__getattr__" not in obj.__dict__
    info = type_info(vm.cap, type(obj))
    if not info.generic or (info.getattr_fn is not None and not info.is_module):
        return False
    return info.look(vm.cap, name)[0] not in (PROPERTY, PY_DATA, PY_OTHER)


def _hasattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, name = args
    if not vm.cap.active:
        return answer(vm, f, hasattr(obj, name), then, data)
    info = None if isinstance(obj, (type, super)) else type_info(vm.cap, type(obj))
    if info is not None and info.generic:
        kind, _ = info.look(vm.cap, name)
        if kind >= 4:
            # A plain class attribute or a method: the instance's dict can only hide it, not take it away.
            return answer(vm, f, True, then, data)
        if kind == 0 and (info.getattr_fn is None or info.is_module) and not isinstance(obj, types.ModuleType):
            try:
                return generic_load(vm, f, obj, name, info, _true_then, (then, data), use_getattr=False)
            except AttributeError:
                return answer(vm, f, False, then, data)
    return vm.call(f, protocols.has_attribute, [builtins.getattr, obj, name], None, then, data)


def _true_then(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    return vm.finish(f, True, *state)


def _setattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return _none_after(vm, f, store_attr, args, then, data)


def _none_after(vm: Any, f: Frame, write: Callable, args: list, then: Any, data: Any) -> Frame | None:
    """A write as a function call, whose result is None."""
    try:
        frame = write(vm, f, *args)
    except Border as b:
        b.push = True
        raise b.to(then, data) from None
    if frame is None:
        return answer(vm, f, None, then, data)
    frame.then, frame.data = _give_none, (then, data)
    return frame


def _give_none(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    return vm.finish(f, None, *state)


def _delattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return _none_after(vm, f, delete_attr, args, then, data)


def _object_getattribute(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, name = args
    if not vm.cap.active:
        return answer(vm, f, object.__getattribute__(obj, name), then, data)
    return generic_load(vm, f, obj, name, type_info(vm.cap, type(obj)), then, data, use_getattr=False)


def _object_setattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not vm.cap.active:
        return answer(vm, f, object.__setattr__(*args), then, data)  # type: ignore[func-returns-value]
    return _none_after(vm, f, generic_store, args, then, data)


def _object_delattr(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not vm.cap.active:
        return answer(vm, f, object.__delattr__(*args), then, data)  # type: ignore[func-returns-value]
    return _none_after(vm, f, generic_delete, args, then, data)


def _object_new(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj = fn(*args, **(kwargs or {}))
    vm.cap.made.add(id(obj))
    return answer(vm, f, obj, then, data)


def _object_init(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return answer(vm, f, fn(*args, **(kwargs or {})), then, data)


def _isinstance(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj, classes = args
    cap = vm.cap
    if isinstance(obj, InterpretedGenerator):
        obj = _A_GENERATOR
    if cap.active:
        stack = [classes]
        while stack:
            c = stack.pop()
            if isinstance(c, tuple):
                stack.extend(c)
            elif isinstance(c, type) and not isinstance(obj, c if type(c) is type else ()):
                check = raw_lookup(type(c), "__instancecheck__")
                if isinstance(check, types.FunctionType) and isinstance(c, STATIC_CHECKS):
                    _guard_abstract(cap, obj, c)
                elif isinstance(check, types.FunctionType):
                    if c is classes:
                        return vm.call(f, check, [c, obj], None, _to_bool, (then, data))
                    raise Border(isinstance, (obj, classes), None, "FL412", "isinstance() with a metaclass's own __instancecheck__").to(
                        then, data
                    )
        src = cap.sources.get(id(obj))
        if src is not None and not src.checked:
            cap.guards.check(src, "type", type(obj))
        if type(obj) is not classes:
            guard_mro(cap, type(obj))
        if type(obj).__flags__ & HEAP_TYPE:
            kind, _ = type_info(cap, type(obj)).look(cap, "__class__")
            if kind == 1:
                return load_attr(vm, f, obj, "__class__", _isinstance_by_class, (classes, then, data))
    return answer(vm, f, isinstance(obj, classes), then, data)


def _guard_abstract(cap: Any, obj: Any, cls: Any) -> None:
    """The answer of a class whose metaclass checks instances its own way, though without the user's code."""
    src = cap.sources.get(id(obj))
    if getattr(cls, "_is_protocol", False):
        if src is not None:
            cap.guards.check(src, "predicate", (IsInstance(cls, isinstance(obj, cls)), f"isinstance of {cls.__qualname__}"), id(cls))
    elif isinstance(cls, abc.ABCMeta) and not isinstance(obj, (int, float, str)):
        guard_subclass(cap, type(obj), cls, isinstance(obj, cls))


def _isinstance_by_class(vm: Any, f: Frame, cls: Any, state: tuple) -> Frame | None:
    classes, then, data = state
    return answer(vm, f, issubclass(cls, classes), then, data)


def _to_bool(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    return vm.finish(f, bool(value), *state)


def _generator_example() -> Any:
    yield


_A_GENERATOR = _generator_example()


def _issubclass(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    cls, classes = args
    for c in classes if isinstance(classes, tuple) else (classes,):
        check = raw_lookup(type(c), "__subclasscheck__")
        if isinstance(check, types.FunctionType) and not isinstance(c, STATIC_CHECKS):
            raise Border(issubclass, (cls, classes), None, "FL412", "issubclass() with a metaclass's own __subclasscheck__").to(then, data)
        if vm.cap.active and isinstance(cls, type) and cls is not c:
            guard_mro(vm.cap, cls)
            if isinstance(c, abc.ABCMeta):
                guard_subclass(vm.cap, cls, c, issubclass(cls, c))
    return answer(vm, f, issubclass(cls, classes), then, data)


def _callable(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if vm.cap.active and args and type(args[0]).__flags__ & HEAP_TYPE:
        type_info(vm.cap, type(args[0])).look(vm.cap, "__call__")
    return answer(vm, f, callable(*args), then, data)


def _type(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 1 and not kwargs:
        t = vm.type_of(args[0])
        return answer(vm, f, t, then, data)
    name, bases, namespace = args
    if vm.cap.active and type(namespace) is dict and all(type(b) is type for b in bases):
        # CPython takes the module's name from the calling frame, which here would be one of fineline's.
        vm.cap.expand(namespace)
        namespace = vm.cap.fresh({"__module__": f.globals.get("__name__"), **namespace})
        return _class_body_done(vm, f, None, (type, name, tuple(bases), namespace, dict(kwargs or {}), then, data))
    raise Border(type, tuple(args), kwargs, "FL423", "making a class").to(then, data)


def _super(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not args:
        info = f.info
        if not info.code.co_argcount:
            raise RuntimeError("super(): no arguments")
        if "__class__" not in info.code.co_freevars:
            raise RuntimeError("super(): __class__ cell not found")
        at = info.slots.index("__class__")
        cell = f.local[at]
        cls = load_cell(vm, cell)
        self = f.local[0]
        if type(self) is types.CellType:
            self = self.cell_contents
        args = [cls, self]
    obj = super(*args)
    vm.cap.made.add(id(obj))
    return answer(vm, f, obj, then, data)


def load_cell(vm: Any, cell: types.CellType) -> Any:
    """The contents of a cell, guarded if the cell existed before."""
    value = cell.cell_contents
    cap = vm.cap
    src = cap.sources.get(id(cell))
    if src is not None and id(cell) not in cap.journal.written:
        cap.load(value, cap.guards.access(src, "cell", None, value))
    return value


def _locals(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if f.namespace is not None:
        return answer(vm, f, f.namespace, then, data)
    out = {}
    for name, value in zip(f.info.slots, f.local, strict=True):
        if type(value) is types.CellType and (name in f.info.code.co_cellvars or name in f.info.code.co_freevars):
            try:
                value = load_cell(vm, value)
            except ValueError:
                continue
        if value is not NULL:
            out[name] = value
    vm.cap.made.add(id(out))
    return answer(vm, f, out, then, data)


def _globals(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if vm.cap.active:
        vm.cap.pin(f.globals, "globals()")
    return answer(vm, f, f.globals, then, data)


def _vars(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not args:
        return _locals(vm, f, fn, args, kwargs, then, data)
    return load_attr(vm, f, args[0], "__dict__", then, data)


def iterate(vm: Any, f: Frame, obj: Any, then: Any = None, data: Any = None) -> Frame | None:
    """``iter(obj)``."""
    cap = vm.cap
    t = type(obj)
    if t is InterpretedGenerator or (t in natives.ITERATORS and id(obj) not in cap.sources):
        return answer(vm, f, obj, then, data)
    if not cap.active:
        method = raw_lookup(t, "__iter__")
        if isinstance(method, types.FunctionType) and not isinstance(obj, (Tensor, type)):
            return vm.call(f, method, [obj], None, then, data)
        return answer(vm, f, vm.native(iter, (obj,), None), then, data)
    if t in natives.CONTAINERS or t in natives.VIEWS or t in (str, bytes, range, torch.Size):
        return _native_iter(vm, f, obj, then, data)
    if isinstance(obj, Tensor):
        if obj.dim() == 0:
            iter(obj)
        parts = vm.tensors.operator(vm, Tensor.unbind, [obj, 0], None, True)
        it = iter(parts)
        cap.made.add(id(it))
        return answer(vm, f, it, then, data)
    if isinstance(obj, enum.EnumMeta):
        return answer(vm, f, iter(list(obj)), then, data)
    info = type_info(cap, type(t) if isinstance(obj, type) else t)
    method = info.look(cap, "__iter__")[1]
    if isinstance(method, types.FunctionType):
        return vm.call(f, method, [obj], None, then, data)
    if method is not None:
        if isinstance(obj, (list, tuple, dict, set, frozenset, collections.deque)):
            return _native_iter(vm, f, obj, then, data)
        if id(obj) in cap.made and hasattr(t, "__next__"):
            return answer(vm, f, obj, then, data)
        raise Border(iter, (obj,), None, "FL415", f"iterating over a {t.__name__}").to(then, data)
    if isinstance(info.look(cap, "__getitem__")[1], types.FunctionType):
        return vm.call(f, protocols.old_iterator, [obj], None, then, data)
    return answer(vm, f, iter(obj), then, data)


def _native_iter(vm: Any, f: Frame, obj: Any, then: Any, data: Any) -> Frame | None:
    try:
        vm.cap.expand(obj)
    except Exception as e:
        raise Border(iter, (obj,), None, "FL413", str(e)).to(then, data) from None
    it = iter(obj)
    vm.cap.made.add(id(it))
    return answer(vm, f, it, then, data)


def _iter(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 1:
        return iterate(vm, f, args[0], then, data)
    poly = natives.POLYFILLS.get(iter)
    if poly is not None:
        return vm.call(f, poly, args, kwargs, then, data)
    raise Border(iter, tuple(args), kwargs, "FL415", "iter() of a callable").to(then, data)


class Stepped:
    """One step of an iterator that ran eagerly."""

    __slots__ = ("ended", "value")

    def __init__(self, value: Any, ended: bool) -> None:
        self.value, self.ended = value, ended


def step_eagerly(it: Any) -> Stepped:
    try:
        return Stepped(next(it), False)
    except StopIteration as stop:
        return Stepped(stop.value, True)


def _next(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 2:
        return vm.call(f, protocols.next_or, args, None, then, data)
    it = args[0]
    cap = vm.cap
    t = type(it)
    if t is InterpretedGenerator:
        return vm.resume(f, it, None, then, data)
    if t in natives.ITERATORS and id(it) not in cap.sources and natives.plain(cap, it):
        value = next(it)
        return answer(vm, f, value, then, data)
    method = type_info(cap, t).look(cap, "__next__")[1] if cap.active else raw_lookup(t, "__next__")
    if isinstance(method, types.FunctionType):
        return vm.call(f, method, [it], None, then, data)
    if method is None or method is MISSING or not cap.active:
        return answer(vm, f, vm.native(next, (it,), None), then, data)
    raise Border(next, (it,), None, "FL416", f"the next item of a {t.__name__}").to(then, data)


def _special(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """`protocols.special`: a bound method found on the type, or MISSING."""
    obj, name = args
    cap = vm.cap
    if isinstance(obj, InterpretedGenerator):
        descr = raw_lookup(InterpretedGenerator, name)
        return answer(vm, f, types.MethodType(descr, obj) if descr is not MISSING else protocols.MISSING, then, data)
    if cap.active:
        kind, descr = type_info(cap, type(obj)).look(cap, name)
    else:
        descr = raw_lookup(type(obj), name)
        kind = 0 if descr is MISSING else PLAIN
    if not kind or descr is None:
        return answer(vm, f, protocols.MISSING, then, data)
    if isinstance(descr, types.FunctionType):
        return answer(vm, f, types.MethodType(descr, obj), then, data)
    if kind == STATIC or isinstance(descr, staticmethod):
        return answer(vm, f, descr.__func__, then, data)
    getter = raw_lookup(type(descr), "__get__")
    if isinstance(getter, types.FunctionType):
        return vm.call(f, getter, [descr, obj, type(obj)], None, then, data)
    return answer(vm, f, descr.__get__(obj, type(obj)) if getter is not MISSING else descr, then, data)


def _native_binary(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    op, a, b = args
    return answer(vm, f, op(a, b), then, data)


def _generator_method(verb: str) -> Callable:
    def handler(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
        gen = args[0]
        if verb == "next":
            return vm.resume(f, gen, None, then, data)
        if verb == "send":
            return vm.resume(f, gen, args[1], then, data)
        if verb == "iter":
            return answer(vm, f, gen, then, data)
        if verb == "throw":
            typ, val = args[1], args[2] if len(args) > 2 else None
            exc = (
                typ
                if isinstance(typ, BaseException)
                else (val if isinstance(val, BaseException) else typ(val) if val is not None else typ())
            )
            return vm.resume(f, gen, None, then, data, None, exc)
        if gen.state in ("new", "closed"):
            gen.state, gen.frame = "closed", None
            return answer(vm, f, None, then, data)
        return vm.call(f, close_generator, [gen, GeneratorExit()], None, then, data)

    return handler


def close_generator(gen: Any, exc: Any) -> None:
    """``gen.close()`` of a suspended generator; interpreted."""
    try:
        gen.throw(exc)
    except (GeneratorExit, StopIteration):
        return
    raise RuntimeError("generator ignored GeneratorExit")


def _exc_info(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    e = vm.handled
    if e is None:
        return answer(vm, f, vm.native(sys.exc_info, (), None), then, data)
    return answer(vm, f, (type(e), e, e.__traceback__), then, data)


def _exception(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return answer(vm, f, vm.handled if vm.handled is not None else vm.native(sys.exception, (), None), then, data)


def _text(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """str(), repr(), format(), hash(), id(): of values only; user classes run their own method."""
    cap = vm.cap
    if not cap.active:
        return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
    if args and fn is not id:
        obj = args[0]
        if natives.deep_plain(cap, obj) and not _prints_address(obj):
            try:
                natives.prepare(vm, fn, "pure", "deep", args, fn, args, kwargs)
            except Border as b:
                raise b.to(then, data) from None
            return answer(vm, f, fn(*args, **(kwargs or {})), then, data)
        t = type(obj)
        if t.__flags__ & HEAP_TYPE and not isinstance(obj, Tensor):
            info = type_info(cap, t)
            names = {str: ("__str__", "__repr__"), repr: ("__repr__",), format: ("__format__",), hash: ("__hash__",)}.get(fn, ())
            for name in names:
                method = info.look(cap, name)[1]
                if isinstance(method, types.FunctionType):
                    return vm.call(f, method, list(args), kwargs, then, data)
                if name != names[-1] and method is not object.__str__:
                    break
    raise Border(fn, tuple(args), kwargs, "FL417", f"{fn.__name__}() of a {type(args[0]).__name__ if args else 'nothing'}").to(then, data)


def _prints_address(obj: Any) -> bool:
    t = type(obj)
    if t in SINGLETONS or t in VALUES or isinstance(obj, PINNED):
        return isinstance(obj, (types.BuiltinFunctionType, torch._ops.OpOverload))
    if isinstance(obj, (list, tuple, set, frozenset)):
        return any(_prints_address(x) for x in obj)
    if isinstance(obj, dict):
        return any(_prints_address(k) or _prints_address(v) for k, v in obj.items())
    return not (isinstance(obj, BaseException) and not any(_prints_address(a) for a in obj.args))


def _lru_call(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """A function with a result cache: called as it is when it maps values to values, else run eagerly."""
    cap = vm.cap
    if not cap.active:
        return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
    values = [*args, *(kwargs or {}).values()]
    if getattr(getattr(fn, "__wrapped__", None), "__module__", None) == "typing":
        return answer(vm, f, cap.pin(fn(*args, **(kwargs or {})), "type").value, then, data)
    if all([is_value(a) and natives.deep_plain(cap, a) for a in values]):
        natives.identify(cap, fn)
        wrapped = getattr(fn, "__wrapped__", None)
        if isinstance(wrapped, types.FunctionType) and closed(wrapped):
            result = fn(*args, **(kwargs or {}))
            if is_value(result):
                return answer(vm, f, result, then, data)
            vm.fail("FL418", f"the cached function {fn.__name__} gave a {type(result).__name__}", True)
            return answer(vm, f, result, then, data)
    raise Border(fn, tuple(args), kwargs, "FL418", f"{getattr(fn, '__name__', 'a function')} keeps a cache of its results").to(then, data)


def closed(fn: types.FunctionType) -> bool:
    """Whether a function's result depends on its arguments and on names of modules, classes and functions alone."""
    if fn.__closure__:
        return False
    for name in fn.__code__.co_names:
        value = fn.__globals__.get(name, MISSING)
        if (
            value is not MISSING
            and not isinstance(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType))
            and not callable(value)
        ):
            return False
    return True


def closed_world(cap: Any, obj: Any, seen: set[int]) -> bool:
    """Guards an object and all it holds; False if some of it has copying of its own, or is a tensor."""
    t = type(obj)
    if t in SINGLETONS or t in VALUES or isinstance(obj, PINNED) or t is types.FunctionType:
        cap.settle(obj)
        return True
    if id(obj) in seen:
        return True
    seen.add(id(obj))
    if t in (list, dict, tuple, set, frozenset, collections.OrderedDict, collections.deque, collections.defaultdict):
        cap.expand(obj)
        items = [x for pair in obj.items() for x in pair] if isinstance(obj, dict) else obj
        return all([closed_world(cap, x, seen) for x in items])
    if (
        isinstance(obj, (Tensor, nn.Module))
        or not t.__flags__ & HEAP_TYPE
        or isinstance(obj, (list, dict, set, tuple, int, str, float, BaseException))
    ):
        return False
    info = type_info(cap, t)
    if any(
        isinstance(info.look(cap, n)[1], types.FunctionType)
        for n in (
            "__deepcopy__",
            "__copy__",
            "__reduce__",
            "__reduce_ex__",
            "__getstate__",
            "__setstate__",
            "__getnewargs__",
            "__getnewargs_ex__",
            "__new__",
        )
    ):
        return False
    if (
        any(isinstance(d, types.MemberDescriptorType) for k in t.__mro__ if k.__flags__ & HEAP_TYPE for d in k.__dict__.values())
        or not t.__dictoffset__
    ):
        return False
    d = obj.__dict__
    cap.dict_source(obj, d)
    return closed_world(cap, d, seen)


def mark_made(cap: Any, obj: Any, seen: set[int] | None = None) -> None:
    """A copy and all that is new in it was made here."""
    t = type(obj)
    if t in SINGLETONS or t in VALUES or id(obj) in cap.sources or isinstance(obj, PINNED) or t is types.FunctionType:
        return
    # Not ``made`` itself: the id of an object that is gone may stand in it.
    seen = set() if seen is None else seen
    if id(obj) in seen:
        return
    seen.add(id(obj))
    cap.made.add(id(obj))
    parts: list[Any] = []
    if isinstance(obj, dict):
        parts = [x for pair in dict.items(obj) for x in pair]
    elif isinstance(obj, (list, tuple, set, frozenset, collections.deque)):
        parts = list(obj)
    elif isinstance(obj, BaseException):
        parts = [obj.args]
    if t.__dictoffset__:
        parts.append(obj.__dict__)
    for part in parts:
        mark_made(cap, part, seen)


def _copying(name: str) -> Callable:
    def handler(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
        cap = vm.cap
        obj = args[0]
        method = type_info(cap, type(obj)).look(cap, name)[1] if cap.active else raw_lookup(type(obj), name)
        if isinstance(method, types.FunctionType) and not isinstance(obj, (Tensor, nn.Module)):
            return vm.call(f, method, [obj] if name == "__copy__" else [obj, {}], None, then, data)
        if not cap.active:
            return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
        if len(args) > 1 or kwargs or not closed_world(cap, obj, set()):
            raise Border(fn, tuple(args), kwargs, "FL410", f"copy.{fn.__name__} of a {type(obj).__name__}").to(then, data)
        result = fn(obj)
        mark_made(cap, result)
        return answer(vm, f, result, then, data)

    return handler


def _container_init(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``list.__init__`` and kin, of an object made here: the update of an empty container."""
    cap = vm.cap
    obj, rest = args[0], args[1:]
    if not cap.active or (not rest and not kwargs):
        return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
    update = next(u for t, u in UPDATES if isinstance(obj, t))
    if len(obj) or id(obj) not in cap.made or (isinstance(obj, collections.deque) and (len(rest) > 1 or kwargs)):
        raise Border(fn, tuple(args), kwargs, "FL411", f"{type(obj).__name__}.__init__ of a container that is in use").to(then, data)
    if isinstance(obj, collections.defaultdict):
        obj.default_factory = rest[0]
        rest = rest[1:]
    return vm.call(f, update, [obj, *rest], kwargs, then, data)


UPDATES = (
    (list, list.extend),
    (collections.OrderedDict, dict.update),
    (dict, dict.update),
    (set, set.update),
    (collections.deque, collections.deque.extend),
)


def _zip(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """zip() and enumerate() of user-defined iterables: the native iterator over what their ``__iter__`` gives, if that is native."""
    cap = vm.cap
    first = args[:1] if fn is enumerate else args
    if cap.active and not all(natives.plain(cap, a) for a in first):
        return vm.call(f, protocols.iterators, [first], None, _over_iterators, (fn, args, kwargs, then, data))
    return natives.call(vm, f, fn, fn, args, kwargs, then, data)


def _over_iterators(vm: Any, f: Frame, iterators: list, state: tuple) -> Frame | None:
    fn, args, kwargs, then, data = state
    full = [*iterators, *args[1:]] if fn is enumerate else iterators
    return natives.call(vm, f, fn, fn, list(full), kwargs, then, data)


def _autograd_apply(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``autograd.Function.apply``: run through when no gradient is asked for, else one node of the graph."""
    cap = vm.cap
    cls, rest = args[0], args[1:]
    if not cap.active:
        return answer(vm, f, vm.native(cls.apply, tuple(rest), kwargs), then, data)
    for name in ("forward", "setup_context", "backward", "jvp", "vmap"):
        type_info(cap, cls).look(cap, name)
    forward, setup = cls.forward, cls.setup_context
    separate = setup is not torch.autograd.Function.setup_context
    wants = torch.is_grad_enabled() and any(isinstance(a, Tensor) and a.requires_grad for a in rest)
    if not wants and not kwargs and isinstance(forward, types.FunctionType):
        ctx = InlineContext(len(rest))
        cap.made.add(id(ctx))
        cap.kept.append(ctx)
        run = protocols.apply_under_no_grad if torch.is_grad_enabled() else protocols.apply_plain
        return vm.call(f, run, [forward, setup if separate else None, ctx, tuple(rest)], None, then, data)
    seen: set[int] = set()
    methods = [m for m in (forward, setup if separate else None, cls.backward) if isinstance(m, types.FunctionType)]
    if not all([see_closed(vm, m, seen) for m in methods]):
        raise Border(cls.apply, tuple(rest), kwargs, "FL511", f"{cls.__qualname__} reads state that may change").to(then, data)
    try:
        result = vm.tensors.operator(vm, _node_target(cls), rest, kwargs)
    except Border as b:
        raise b.to(then, data) from None
    return answer(vm, f, result, then, data)


def _node_target(cls: Any) -> Callable:
    """A function for FX to name: it can't print a bound classmethod."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)

    apply.__name__ = apply.__qualname__ = f"{cls.__name__}_apply"
    return apply


class InlineContext:
    """The ``ctx`` of an autograd.Function whose backward will never run."""

    def __init__(self, n: int) -> None:
        self.needs_input_grad = (False,) * n
        self.saved_tensors: tuple = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


def see_closed(vm: Any, fn: types.FunctionType, seen: set[int]) -> bool:
    """Guards a function that a graph node will run, with all globals and cells it can read; False if some of them may change unseen."""
    cap = vm.cap
    if id(fn) in seen:
        return True
    seen.add(id(fn))
    vm.see_function(cap, fn)
    values = []
    globals_ = fn.__globals__
    src = cap.pin(globals_, f"globals of {globals_.get('__name__')}")
    for name in fn.__code__.co_names:
        if name in globals_:
            values.append(cap.read_key(globals_, src, name, globals_[name]))
    for cell in fn.__closure__ or ():
        values.append(load_cell(vm, cell))
    for v in values:
        if isinstance(v, types.FunctionType):
            if not (v.__module__ or "").startswith("torch.") and not see_closed(vm, v, seen):
                return False
        elif not is_value(v):
            return False
    return True


def _call_weakref(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``ref()``: the object is guarded to be the same one, which the program holds weakly."""
    cap = vm.cap
    ref = args[0]
    obj = vm.native(ref, (), None)
    src = cap.sources.get(id(ref))
    if src is not None and cap.active:
        cap.guards.check(src, "predicate", (_SameTarget(ref if obj is not None else None), "refers to the same object"), "target")
        if obj is not None and id(obj) not in cap.sources and id(obj) not in cap.made:
            raise Border(ref, (), None, "FL410", "a weak reference to an object that is reached in no other way").to(then, data)
    return answer(vm, f, obj, then, data)


class _SameTarget:
    def __init__(self, ref: Any) -> None:
        self.ref = ref

    def __call__(self, other: Any) -> bool:
        return other() is (None if self.ref is None else self.ref())


def _record_enter(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """A profiler's label has no place in a graph; the profiler sees the program instead."""
    return answer(vm, f, args[0], then, data)


def _record_exit(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return answer(vm, f, None, then, data)


def _build_class(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """The class statement: its body is run through, the class itself is made for the capture alone."""
    body, name, *bases = args
    if not vm.cap.active:
        return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
    real = types.resolve_bases(bases)
    meta, namespace, rest = types.prepare_class(name, real, kwargs)
    if meta not in PLAIN_METACLASSES or type(namespace) is not dict or not isinstance(body, types.FunctionType):
        raise Border(fn, tuple(args), kwargs, "FL423", f"the metaclass of {name} is {meta.__qualname__}").to(then, data)
    if real is not bases and tuple(bases) != tuple(real):
        namespace["__orig_bases__"] = tuple(bases)
    vm.cap.made.add(id(namespace))
    frame = vm.push_function(f, body, [], None, _class_body_done, (meta, name, tuple(real), namespace, dict(rest), then, data))
    frame.namespace = namespace
    return frame


PLAIN_METACLASSES = (type, abc.ABCMeta)


def _class_body_done(vm: Any, f: Frame, cell: Any, state: tuple) -> Frame | None:
    meta, name, bases, namespace, rest, then, data = state
    cap = vm.cap
    hooks = [raw_lookup(b, "__init_subclass__") for b in bases] + [raw_lookup(type(v), "__set_name__") for v in namespace.values()]
    if cap.active and any(isinstance(getattr(h, "__func__", h), types.FunctionType) for h in hooks):
        raise Border(meta, (name, bases, namespace), rest, "FL423", f"making {name} calls __init_subclass__ or __set_name__").to(then, data)
    cls = vm.native(meta, (name, bases, namespace), rest)
    if cap.active:
        cap.made.add(id(cls))
        cap.kept.append(cls)
    return answer(vm, f, cls, then, data)


def _split_group(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    cap = vm.cap
    if cap.active and not (
        len(args) == 2 and not kwargs and all(isinstance(c, type) for c in (args[1] if isinstance(args[1], tuple) else (args[1],)))
    ):
        raise Border(fn, tuple(args), kwargs, "FL410", f"{fn.__name__} with a function").to(then, data)
    result = vm.native(fn, tuple(args), kwargs)
    for part in result if isinstance(result, tuple) else (result,):
        mark_made(cap, part)
    return answer(vm, f, result, then, data)


def _wrapper(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """property(), classmethod(), staticmethod(): they only hold what they are given."""
    return answer(vm, f, vm.cap.fresh(vm.native(fn, tuple(args), kwargs)), then, data)


def _signature(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``inspect.signature`` of a function: it follows from the code and the defaults, which are guarded."""
    cap = vm.cap
    target = args[0].__func__ if isinstance(args[0], types.MethodType) else args[0]
    if not cap.active or not isinstance(target, types.FunctionType) or len(args) > 1 or kwargs:
        if cap.active:
            raise Border(fn, tuple(args), kwargs, "FL410", f"inspect.signature of a {type(target).__name__}").to(then, data)
        return answer(vm, f, vm.native(fn, tuple(args), kwargs), then, data)
    wrapped: Any = target
    while isinstance(wrapped, types.FunctionType):
        vm.see_function(cap, wrapped)
        d = wrapped.__dict__
        src = cap.dict_source(wrapped, d)
        for name in ("__signature__", "__wrapped__"):
            if name in d:
                cap.read_key(d, src, name, d[name])
            else:
                cap.read_absent(d, src, name)
        wrapped = d.get("__wrapped__")
    result = fn(*args)
    cap.made.add(id(result))
    for p in result.parameters.values():
        cap.made.add(id(p))
    cap.kept.append(result)
    return answer(vm, f, result, then, data)


def _true(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    # nn.Module.__call__ asks so as to leave out the hooks that an error must not stop; here they are run as ever.
    return answer(vm, f, f.info.code is not torch.nn.Module._call_impl.__code__, then, data)


def _false(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return answer(vm, f, False, then, data)


def _first(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return answer(vm, f, args[-1], then, data)


def _bool(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) != 1 or kwargs:
        return answer(vm, f, bool(*args, **(kwargs or {})), then, data)
    try:
        return vm.truth(vm, f, args[0], then, data)
    except Border as b:
        raise b.to(then, data) from None


def _len(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) != 1:
        return answer(vm, f, len(*args), then, data)
    return length(vm, f, args[0], then, data)


def length(vm: Any, f: Frame, obj: Any, then: Any = None, data: Any = None) -> Frame | None:
    cap = vm.cap
    t = type(obj)
    if cap.active:
        if isinstance(obj, Tensor):
            return answer(vm, f, len(obj), then, data)
        if t in natives.CONTAINERS:
            guard_length(cap, obj)
            return answer(vm, f, len(obj), then, data)
        if t.__flags__ & HEAP_TYPE:
            method = type_info(cap, type(t) if isinstance(obj, type) else t).look(cap, "__len__")[1]
            if isinstance(method, types.FunctionType):
                return vm.call(f, protocols.checked_length, [types.MethodType(method, obj)], None, then, data)
            guard_length(cap, obj)
            return answer(vm, f, len(obj), then, data)
        return natives.call(vm, f, len, len, [obj], None, then, data)
    return answer(vm, f, len(obj), then, data)


def guard_length(cap: Any, obj: Any) -> None:
    src = cap.sources.get(id(obj))
    if src is not None and id(obj) not in cap.expanded and not isinstance(obj, (str, bytes)):
        if id(obj) in cap.journal.written or isinstance(obj, (set, frozenset, types.MappingProxyType, bytearray)):
            cap.expand(obj, ordered=False)
        else:
            cap.guards.check(src, "len", len(obj))


def _tuple_new(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """``tuple.__new__(cls, iterable)``, as named tuples call it: what the iterable gives is taken out of it first."""
    cap = vm.cap
    if len(args) == 2 and not kwargs and isinstance(args[0], type) and (cap.active or natives.polyfill_needed(args)):
        return vm.call(f, protocols.listed, [args[1]], None, _tuple_filled, (fn, args[0], then, data))
    return natives.call(vm, f, fn, fn, args, kwargs, then, data)


def _tuple_filled(vm: Any, f: Frame, items: list, state: tuple) -> Frame | None:
    fn, cls, then, data = state
    result = fn(cls, items)
    vm.cap.made.add(id(result))
    return answer(vm, f, result, then, data)


def _enum_call(vm: Any, f: Frame, cls: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if all(is_value(a) for a in args[0:] if not isinstance(a, type)) and not kwargs:
        real = args if isinstance(cls, enum.EnumMeta) else args[1:]
        target = cls if isinstance(cls, enum.EnumMeta) else args[0]
        for a in real:
            vm.cap.settle(a)
        return answer(vm, f, target(*real), then, data)
    raise Border(cls, tuple(args), kwargs, "FL423", "making an enum").to(then, data)


SPECIALS: Mapping[Any, Callable] = MappingProxyType(
    {
        builtins.getattr: _getattr,
        builtins.hasattr: _hasattr,
        builtins.setattr: _setattr,
        builtins.delattr: _delattr,
        object.__getattribute__: _object_getattribute,
        object.__setattr__: _object_setattr,
        object.__delattr__: _object_delattr,
        object.__new__: _object_new,
        object.__init__: _object_init,
        tuple.__new__: _tuple_new,
        types.ModuleType.__getattribute__: _object_getattribute,
        builtins.isinstance: _isinstance,
        builtins.issubclass: _issubclass,
        builtins.callable: _callable,
        builtins.type: _type,
        builtins.super: _super,
        builtins.locals: _locals,
        builtins.globals: _globals,
        builtins.vars: _vars,
        builtins.iter: _iter,
        builtins.next: _next,
        builtins.len: _len,
        builtins.bool: _bool,
        builtins.str: _text,
        builtins.repr: _text,
        builtins.format: _text,
        builtins.hash: _text,
        builtins.id: _text,
        sys.exc_info: _exc_info,
        sys.exception: _exception,
        protocols.special: _special,
        protocols.native_binary: _native_binary,
        InterpretedGenerator.send: _generator_method("send"),
        InterpretedGenerator.throw: _generator_method("throw"),
        InterpretedGenerator.close: _generator_method("close"),
        InterpretedGenerator.__next__: _generator_method("next"),
        InterpretedGenerator.__iter__: _generator_method("iter"),
        enum.EnumMeta.__call__: _enum_call,
        copy.copy: _copying("__copy__"),
        copy.deepcopy: _copying("__deepcopy__"),
        inspect.signature: _signature,
        torch.autograd.Function.__dict__["apply"].__func__: _autograd_apply,
        weakref.ref.__call__: _call_weakref,
        torch.autograd.profiler.record_function.__enter__: _record_enter,
        torch.autograd.profiler.record_function.__exit__: _record_exit,
        builtins.__build_class__: _build_class,
        BaseExceptionGroup.split: _split_group,
        BaseExceptionGroup.subgroup: _split_group,
        property: _wrapper,
        classmethod: _wrapper,
        staticmethod: _wrapper,
        property.setter: _wrapper,
        property.getter: _wrapper,
        property.deleter: _wrapper,
        zip: _zip,
        enumerate: _zip,
        **{t.__init__: _container_init for t, _ in UPDATES},
        collections.defaultdict.__init__: _container_init,
        typing.cast: _first,
        torch.jit.is_scripting: _false,
        torch.jit.is_tracing: _false,
        torch.compiler.is_compiling: _true,
        torch.compiler.is_dynamo_compiling: _true,
        torch.compiler.is_exporting: _false,
    }
)
LRU_TYPE = type(functools.lru_cache(lambda: None))
call_cached = _lru_call
