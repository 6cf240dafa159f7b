"""Classes as the interpreter makes them and asks about them: class statements, isinstance(), super()."""

from __future__ import annotations

import abc
import builtins
import enum
import types
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from fineline.capture.attributes import (
    load_attr,
    raw_lookup,
    type_info,
)
from fineline.capture.capture import HEAP_TYPE, is_value
from fineline.capture.frame import Frame, InterpretedGenerator
from fineline.capture.introspection import load_cell
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


def _object_new(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    obj = fn(*args, **(kwargs or {}))
    vm.cap.made.add(id(obj))
    return vm.finish(f, obj, then, data)


def _object_init(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    return vm.finish(f, fn(*args, **(kwargs or {})), then, data)


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
    return vm.finish(f, isinstance(obj, classes), then, data)


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
    return vm.finish(f, issubclass(cls, classes), then, data)


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
    return vm.finish(f, issubclass(cls, classes), then, data)


def _callable(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if vm.cap.active and args and type(args[0]).__flags__ & HEAP_TYPE:
        type_info(vm.cap, type(args[0])).look(vm.cap, "__call__")
    return vm.finish(f, callable(*args), then, data)


def _type(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if len(args) == 1 and not kwargs:
        t = vm.type_of(args[0])
        return vm.finish(f, t, then, data)
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
    return vm.finish(f, obj, then, data)


def _build_class(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """The class statement: its body is run through, the class itself is made for the capture alone."""
    body, name, *bases = args
    if not vm.cap.active:
        return vm.finish(f, vm.native(fn, tuple(args), kwargs), then, data)
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
    return vm.finish(f, cls, then, data)


def _wrapper(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """property(), classmethod(), staticmethod(): they only hold what they are given."""
    return vm.finish(f, vm.cap.fresh(vm.native(fn, tuple(args), kwargs)), then, data)


def _enum_call(vm: Any, f: Frame, cls: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if all(is_value(a) for a in args[0:] if not isinstance(a, type)) and not kwargs:
        real = args if isinstance(cls, enum.EnumMeta) else args[1:]
        target = cls if isinstance(cls, enum.EnumMeta) else args[0]
        for a in real:
            vm.cap.settle(a)
        return vm.finish(f, target(*real), then, data)
    raise Border(cls, tuple(args), kwargs, "FL423", "making an enum").to(then, data)


SPECIALS: Mapping[Any, Callable] = MappingProxyType(
    {
        object.__new__: _object_new,
        object.__init__: _object_init,
        builtins.isinstance: _isinstance,
        builtins.issubclass: _issubclass,
        builtins.callable: _callable,
        builtins.type: _type,
        builtins.super: _super,
        builtins.__build_class__: _build_class,
        property: _wrapper,
        classmethod: _wrapper,
        staticmethod: _wrapper,
        property.setter: _wrapper,
        property.getter: _wrapper,
        property.deleter: _wrapper,
        enum.EnumMeta.__call__: _enum_call,
    }
)
