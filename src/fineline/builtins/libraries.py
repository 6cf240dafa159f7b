"""Library functions that need a handler or a replacement: some act differently while they are compiled, some fill a cache."""

from __future__ import annotations

import functools
import logging
import os
import pickle
import re
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor
from torch.masked import _ops as masked_ops

from fineline.frames.frame import Frame
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.tracing.interp import Call, Handler

_CAPTURING = "transformers.utils.output_capturing"


def set_collector(self: Any, value: Any) -> tuple:
    """Sets a collector as the library does in compiled code, but returns the previous one, which the library's code forgets."""
    before = self.global_var, self.compiling
    self.global_var, self.compiling = value, True
    return before


def reset_collector(self: Any, token: Any) -> None:
    if type(token) is tuple:
        self.global_var, self.compiling = token
    elif self.compiling or token is None:
        self.global_var, self.compiling = None, False
    else:
        self.context_var.reset(token)


def all_true(valid: Tensor, error_message: str) -> Tensor:
    """Returns the tensor whose truth PyTorch's function returns from 2.15 on: its callers branch on it, and a branch on a tensor can be in a graph."""
    return valid.all()


_STAND_INS: Mapping[tuple[str, str], Callable] = MappingProxyType(
    {
        (_CAPTURING, "CompileableContextVar.set"): set_collector,
        (_CAPTURING, "CompileableContextVar.reset"): reset_collector,
        ("torch.distributions.distribution", "_all_true_or_runtime_assert"): all_true,
    }
)
# Functions that look up what they return, without an argument or for a tensor's type, in a table of their library's, which the first call fills.
_FILLING = frozenset({("einops._backends", "get_backend"), ("torch.nested._internal.nested_tensor", "_nt_view_dummy")})
NAMES = frozenset(name for _, name in (*_STAND_INS, *_FILLING))
# A tensor whose type is all that these functions look at.
_ANY_TENSOR = torch.empty(0)


def stand_in(fn: types.FunctionType) -> Callable | None:
    """Returns the function that is captured instead of ``fn``; None if there is none."""
    return _STAND_INS.get((fn.__module__ or "", fn.__qualname__)) if fn.__qualname__ in NAMES else None


def fills_table(fn: types.FunctionType) -> bool:
    """Returns whether ``fn`` fills a table of its library's at its first call."""
    return (fn.__module__ or "", fn.__qualname__) in _FILLING


def fill_table(call: Call) -> Frame | None:
    """Has the function fill its table before it is run through: the program is then the one of later calls, too."""
    interp, values = call.interp, call.values()
    if call.trace.active and not values:
        interp.native(call.fn, (), None)
    elif call.trace.active and len(values) == 1 and is_a(values[0], Tensor) and interp.type_of(values[0]) is Tensor:
        interp.native(call.fn, (_ANY_TENSOR,), None)
    return call.interpret()


# From Python 3.13 on, a count and flags that are not given are an object of its own.
_NOT_GIVEN = type((re.sub.__kwdefaults__ or {}).get("count", 0))
_TEXTS_AND_COUNTS = (str, bytes, int, _NOT_GIVEN)
_FLAGS = (int, re.RegexFlag, _NOT_GIVEN)


def _pattern(call: Call) -> Frame | None:
    """Handles the compilation of a pattern in ``re``, which caches its results: the pattern is a constant for a guarded text and flags."""
    pattern, flags = call.values()
    if not call.trace.active:
        return call.finish(call.interp.native(call.fn, (pattern, flags), None))
    if type(pattern) not in (str, bytes) or type(flags) not in _FLAGS or flags & re.DEBUG:
        return call.interpret()
    call.trace.deferred.settle(pattern)
    call.trace.deferred.settle(flags)
    compiled = call.interp.native(call.fn, (pattern, flags), None)
    call.trace.pin(compiled, "pattern")
    return call.finish(compiled)


def _replaced(call: Call) -> Frame | None:
    """Handles ``Pattern.sub`` and ``subn``, which run no user code if the replacement is a text."""
    values = call.values()
    if call.trace.active and not (type(values[0]) is re.Pattern and all([type(v) in _TEXTS_AND_COUNTS for v in values[1:]])):
        raise call.graph_break("FL412", f"{call.fn.__qualname__} calls a function for each match")
    for v in values if call.trace.active else ():
        call.trace.deferred.settle(v)
    return call.run_natively()


def _path(call: Call) -> Frame | None:
    """Handles ``os.fspath``: returns a text itself, and breaks the graph for an object, whose method it calls."""
    if call.trace.active and type(call.args[0]) not in (str, bytes):
        raise call.graph_break("FL412", f"os.fspath asks a {type(call.args[0]).__name__}")
    return call.run_natively()


def _enabled(call: Call) -> Frame | None:
    """Handles ``Logger.isEnabledFor``: makes the logger cache its answer now, because it takes a lock to store the first one."""
    if call.trace.active and len(call.args) == 2 and type(call.args[0]) in (logging.Logger, logging.RootLogger) and type(call.args[1]) is int:
        call.fn(*call.args)
    return call.interpret()


def _pickled(call: Call) -> Frame | None:
    """Handles ``pickle.dumps`` of plain values, such as the arguments in a cache's key (gpytorch): it depends only on their values."""
    values = call.values()
    if call.trace.active and not _told_by_equality(values, []):
        raise call.graph_break("FL410", "a pickle of more than plain values, each there once")
    return c_calls.call_c(call)


def _told_by_equality(values: Any, seen: list) -> bool:
    """Returns whether equal ``values`` have equal pickles. A pickle writes each object once, so no two parts may be equal or identical."""
    for v in values:
        t = type(v)
        if t in (list, dict):
            if any([v is other for other in seen]):
                return False
            seen.append(v)
        elif t not in (str, bytes, tuple, int, float, bool, type(None)):
            return False
        parts = [x for item in v.items() for x in item] if t is dict else v if t in (list, tuple) else ()
        if not _told_by_equality(parts, seen):
            return False
        if t in (str, bytes, tuple) and v != ():
            if any([type(other) is t and v == other for other in seen]):
                return False
            seen.append(v)
    return True


def filled(op: Any, input: Any, mask: Any, *args: Any) -> Any:
    """Returns the input of a function of `torch.masked`, with the function's neutral element where it is masked."""
    if mask is None:
        return input
    there = masked_ops._input_mask(input, mask=mask)
    return masked_ops._where(there, input, masked_ops._reduction_identity(op.__name__, input, *args))


def _fill(call: Call) -> Frame | None:
    """Handles the filling of a masked input. PyTorch's function makes a class at each call, which only a `MaskedTensor` needs."""
    op, t = [*call.args, None, None][:2]
    if not call.trace.active or call.kwargs or type(op) is not types.FunctionType or not is_a(t, Tensor) or is_a(t, MaskedTensor):
        return call.interpret()
    return call.instead(filled, call.args)


def cached_attribute(self: functools.cached_property, instance: Any, owner: Any = None) -> Any:
    """Returns what a ``cached_property`` gives, as Python computes it from 3.12 on: without a lock."""
    values = instance.__dict__
    if self.attrname not in values:
        values[self.attrname] = self.func(instance)
    return values[self.attrname]


def _cached_attribute(call: Call) -> Frame | None:
    own, instance, *_ = [*call.args, None, None]
    locking = is_a(own, functools.cached_property) and type(own.attrname) is str and "lock" in vars(own)
    if not call.trace.active or call.kwargs or not locking or instance is None or is_a(instance, type) or type(instance).__dictoffset__ == 0:
        return call.interpret()
    return call.instead(cached_attribute, call.args)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        masked_ops._combine_input_and_mask: _fill,
        functools.cached_property.__get__: _cached_attribute,
        pickle.dumps: _pickled,
        re._compile: _pattern,  # type: ignore[attr-defined]
        re.Pattern.sub: _replaced,
        re.Pattern.subn: _replaced,
        os.fspath: _path,
        logging.Logger.isEnabledFor: _enabled,
    }
)
