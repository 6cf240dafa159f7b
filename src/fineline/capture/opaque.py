"""Handlers that run an instruction natively, behind a border, because capturing it failed the first time."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fineline.capture import natives, protocols
from fineline.capture.frame import NULL, Frame
from fineline.capture.instructions import Handler
from fineline.capture.signals import Border


def _opaque_call(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    args = s[-arg:] if arg else []
    del s[len(s) - arg :]
    self, fn = s.pop(), s.pop()
    if fn is NULL:
        fn = self
    else:
        args.insert(0, self)
    names, kwargs = f.kwnames, {}
    if names:
        f.kwnames = ()
        kwargs = dict(zip(names, args[-len(names) :], strict=True))
        del args[-len(names) :]
    raise Border(fn, tuple(args), kwargs, "FL420", f"{natives.describe(fn)} could not be captured the first time")


def _opaque_call_ex(vm: Any, f: Frame, arg: int) -> Frame | None:
    s = f.stack
    kwargs = s.pop() if arg & 1 else None
    args = s.pop()
    fn = s.pop()
    if s and s[-1] is NULL:
        s.pop()
    raise Border(protocols.spread_call, (fn, args, kwargs or {}), None, "FL420", f"{natives.describe(fn)} could not be captured the first time")


def _opaque_attr(vm: Any, f: Frame, arg: int) -> Frame | None:
    raise Border(getattr, (f.stack.pop(), f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_method(vm: Any, f: Frame, arg: int) -> Frame | None:
    obj = f.stack.pop()
    f.stack.append(NULL)
    raise Border(getattr, (obj, f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_subscr(vm: Any, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    raise Border(_getitem, (f.stack.pop(), key), None, "FL420", "this item could not be captured the first time")


def _getitem(obj: Any, key: Any) -> Any:
    return obj[key]


def _opaque_iter(vm: Any, f: Frame, arg: int) -> Frame | None:
    raise Border(iter, (f.stack.pop(),), None, "FL420", "this iteration could not be captured the first time")


OPAQUE: Mapping[str, Handler] = MappingProxyType(
    {
        "CALL": _opaque_call,
        "CALL_FUNCTION_EX": _opaque_call_ex,
        "LOAD_ATTR": _opaque_attr,
        "LOAD_METHOD": _opaque_method,
        "BINARY_SUBSCR": _opaque_subscr,
        "GET_ITER": _opaque_iter,
    }
)
