"""Objects that the captured code makes of classes: what ``type.__call__`` does."""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque
from typing import Any

from fineline.capture import natives
from fineline.capture.attributes import type_info
from fineline.capture.frame import Frame
from fineline.capture.signals import Border
from fineline.kinds import is_a

C_NEW = frozenset(
    id(t.__new__)
    for t in (object, list, dict, set, deque, OrderedDict, defaultdict, BaseException, tuple, frozenset, int, float, str, bytes, property)
)


def make_instance(vm: Any, f: Frame, cls: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    """``type.__call__``."""
    cap = vm.cap
    info = type_info(cap, cls)
    new = info.look(cap, "__new__")[1]
    new = new.__func__ if is_a(new, staticmethod) else new
    if not is_a(init := info.look(cap, "__init__")[1], (types.FunctionType, types.WrapperDescriptorType)):
        raise Border(cls, tuple(args), kwargs, "FL412", f"the __init__ of {cls.__qualname__} is a {type(init).__name__}").to(then, data)
    if cap.active and info.look(cap, "__del__")[1] is not None:
        # What no program makes has no end.
        raise Border(cls, tuple(args), kwargs, "FL438", f"a {cls.__qualname__} is told by __del__ that nothing refers to it").to(then, data)
    state = (cls, args, kwargs, then, data)
    if is_a(new, types.FunctionType):
        vm.class_value(new)
        return vm.call(f, new, [cls, *args], kwargs, _initialise, state)
    if id(new) not in C_NEW and not issubclass(cls, BaseException):
        raise Border(cls, tuple(args), kwargs, "FL422", f"making a {cls.__qualname__}, whose memory C lays out").to(then, data)
    if new is object.__new__:
        obj = cls.__new__(cls) if init is not object.__init__ else cls.__new__(cls, *args, **(kwargs or {}))
    else:
        for a in args if new is not property.__new__ else ():
            if not natives.plain(cap, a):
                raise Border(cls, tuple(args), kwargs, "FL422", f"making a {cls.__qualname__} from an object that C reads").to(then, data)
        obj = new(cls, *args, **(kwargs or {})) if not issubclass(cls, (list, dict, set, deque, property)) else new(cls)
    cap.made.add(id(obj))
    return _initialise(vm, f, obj, state)


def _initialise(vm: Any, f: Frame, obj: Any, state: tuple) -> Frame | None:
    """... behind ``__new__``."""
    cls, args, kwargs, then, data = state
    if not is_a(obj, cls):
        return vm.finish(f, obj, then, data)
    cap = vm.cap
    init = type_info(cap, type(obj)).look(cap, "__init__")[1]
    if init is object.__init__ and not is_a(obj, BaseException):
        return vm.finish(f, obj, then, data)
    if is_a(obj, BaseException) and not is_a(init, types.FunctionType):
        init(obj, *args, **(kwargs or {}))
        return vm.finish(f, obj, then, data)
    return vm.call(f, init, [obj, *args], kwargs, _initialised, (obj, then, data))


def _initialised(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    obj, then, data = state
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return vm.finish(f, obj, then, data)
