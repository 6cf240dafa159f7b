"""Context variables: ``get`` reads the value with a guard, ``set`` and ``reset`` happen in the program, which makes the tokens anew."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import NotCapturable
from fineline.frames.stub_frames import is_own
from fineline.numpy_support import ERRORS_VARIABLE
from fineline.objects.attribute_reads import read_member
from fineline.tracing.identity_guards import identify
from fineline.tracing.interp import Call, Handler, Interp
from fineline.tracing.mutation_log import Setting

_NOTHING = object()


class _Value:
    """Reads the value of a context variable as a member. The default that the variable was made with is none: it never changes."""

    __name__ = "value"
    MEMBER_TEXTS = MappingProxyType({"": "{of}.get()"})

    def __get__(self, var: Any, cls: type | None = None) -> Any:
        value = var.get(_NOTHING)
        if value is _NOTHING:
            raise AttributeError(var.name)
        return value


_VALUE = _Value()


def _get(call: Call) -> Frame | None:
    interp, trace = call.interp, call.trace
    if not trace.active or call.kwargs or not 1 <= len(call.args) <= 2 or type(call.args[0]) is not ContextVar:
        return call.run_natively()
    var = call.args[0]
    if trace.mutations.settings.may_differ(var):
        raise NotCapturable(f"it reads the context variable {var.name}, which may have another value when it runs")
    identify(trace, var)
    if trace.mutations.settings.is_set(var):
        trace.mutations.note_setting_read(trace.sources[var])
        return call.run_natively()
    value = _value(interp, var)
    if value is not _NOTHING:
        return call.finish(value)
    if len(call.args) == 2:
        return call.finish(call.args[1])
    default = call.native()
    trace.pin(default, "default")
    return call.finish(default)


def _value(interp: Interp, var: ContextVar) -> Any:
    """Returns the value from before the segment, with a guard; `_NOTHING` if there is none."""
    try:
        return read_member(interp, var, _VALUE, "value")
    except AttributeError:
        return _NOTHING


def _set(call: Call) -> Frame | None:
    trace, interp = call.trace, call.interp
    if not trace.active or call.kwargs or len(call.args) != 2 or type(call.args[0]) is not ContextVar:
        return call.run_natively()
    var, value = call.args
    if interp.nested.opaque is not None or var not in trace.sources:
        raise call.graph_break("FL411", "ContextVar.set is called where the program cannot repeat it")
    if var is ERRORS_VARIABLE:
        raise call.graph_break("FL411", "ContextVar.set sets what NumPy does at errors, which C code reads")
    if not trace.mutations.settings.is_set(var):
        # The token tells it.
        identify(trace, var)
        _value(interp, var)
    token = call.native()
    f = call.frame
    trace.mutations.settings.add(Setting(var, value, token, None if is_own(f.info.code) else (f.info.code, f.ip - 1)))
    trace.made.add(token)
    return call.finish(token)


def _reset(call: Call) -> Frame | None:
    settings = call.trace.mutations.settings
    if not call.trace.active or call.kwargs or len(call.args) != 2:
        return call.run_natively()
    if not settings.ends_with(*call.args):
        raise call.graph_break("FL411", "ContextVar.reset takes back what other code has set")
    value = call.native()
    settings.events.pop()
    return call.finish(value)


HANDLERS: Mapping[Any, Handler] = MappingProxyType({ContextVar.get: _get, ContextVar.set: _set, ContextVar.reset: _reset})
