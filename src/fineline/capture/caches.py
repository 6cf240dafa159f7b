"""Calls of functions that functools.lru_cache has wrapped."""

from __future__ import annotations

import functools
import types
from typing import Any

from fineline.capture import natives
from fineline.capture.attributes import MISSING
from fineline.capture.capture import Capture, is_value
from fineline.capture.frame import Frame
from fineline.capture.signals import Border
from fineline.capture.symbolic import settle_all
from fineline.kinds import is_a


def call_cached(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    """A function with a result cache: called as it is when it maps values to values, else run eagerly."""
    cap = vm.cap
    if not cap.active:
        return vm.finish(f, vm.native(fn, tuple(args), kwargs), then, data)
    if vm.fakes is not None:
        args, kwargs = [settle_all(a) for a in args], {k: settle_all(a) for k, a in (kwargs or {}).items()}
    values = [*args, *(kwargs or {}).values()]
    if getattr(getattr(fn, "__wrapped__", None), "__module__", None) == "typing" and all([lasts(cap, a) for a in values]):
        return vm.finish(f, cap.pin(fn(*args, **(kwargs or {})), "type").value, then, data)
    if all([is_value(a) and natives.deep_plain(cap, a) for a in values]):
        wrapped = getattr(fn, "__wrapped__", None)
        if is_a(wrapped, types.FunctionType) and closed(wrapped):
            natives.identify(cap, fn)
            result = fn(*args, **(kwargs or {}))
            if is_value(result):
                return vm.finish(f, result, then, data)
            vm.fail("FL418", f"the cached function {fn.__name__} gave a {type(result).__name__}", True)
            return vm.finish(f, result, then, data)
    raise Border(fn, tuple(args), kwargs, "FL418", f"{getattr(fn, '__name__', 'a function')} keeps a cache of its results").to(then, data)


def lasts(cap: Capture, v: Any) -> bool:
    """Whether ``v``, a class or what classes are parameterized with, is the same object at each call; guarded."""
    if type(v) in (tuple, list):
        return all([lasts(cap, item) for item in v])
    if is_a(v, type):
        return id(v) not in cap.made and v not in cap.classes
    if is_value(v):
        return True
    src = cap.sources.get(id(v))
    while src is not None and src.parent is not None:
        src = src.parent
    if src is None or src.op != "pin":
        return False
    natives.identify(cap, v)
    return True


def closed(fn: types.FunctionType) -> bool:
    """Whether a function's result depends on its arguments and on names of modules, classes and functions alone."""
    if fn.__closure__:
        return False
    for name in fn.__code__.co_names:
        value = fn.__globals__.get(name, MISSING)
        if (
            value is not MISSING
            and not is_a(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType))
            and not callable(value)
        ):
            return False
    return True


LRU_TYPE = type(functools.lru_cache(lambda: None))
