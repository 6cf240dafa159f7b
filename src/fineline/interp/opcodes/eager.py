"""Handlers that run an instruction natively, after a graph break, because capturing it failed the first time."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType

from fineline.cpython import protocols
from fineline.frames.frame import NULL, Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.opcode_families import Handler
from fineline.interp.opcodes.flow import called, spread
from fineline.objects import c_calls
from fineline.tracing.interp import Interp


def _opaque_call(interp: Interp, f: Frame, arg: int) -> Frame | None:
    fn, args, kwargs = called(f, arg)
    raise GraphBreak(fn, tuple(args), kwargs, "FL420", f"{c_calls.describe(fn)} could not be captured the first time")


def _opaque_call_ex(interp: Interp, f: Frame, arg: int) -> Frame | None:
    fn, args, kwargs = spread(f, arg)
    raise GraphBreak(protocols.spread_call, (fn, args, kwargs or {}), None, "FL420", f"{c_calls.describe(fn)} could not be captured the first time")


def _opaque_attr(interp: Interp, f: Frame, arg: int) -> Frame | None:
    raise GraphBreak(getattr, (f.stack.pop(), f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_method(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj = f.stack.pop()
    f.stack.append(NULL)
    raise GraphBreak(getattr, (obj, f.info.names[arg]), None, "FL420", "this attribute could not be captured the first time")


def _opaque_subscr(interp: Interp, f: Frame, arg: int) -> Frame | None:
    key = f.stack.pop()
    raise GraphBreak(operator.getitem, (f.stack.pop(), key), None, "FL420", "this item could not be captured the first time")


def _opaque_iter(interp: Interp, f: Frame, arg: int) -> Frame | None:
    raise GraphBreak(iter, (f.stack.pop(),), None, "FL420", "this iteration could not be captured the first time")


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
