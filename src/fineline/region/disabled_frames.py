"""Calls of functions whose own frames run in Python, and whose callees are captured again.

These are functions under ``disable(recursive=False)``, and the ``apply`` of autograd functions that run eagerly at a graph break.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from torch import nn

from fineline.builtins.calls import no_hooks
from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.codegen.escape import real_generator
from fineline.frames.frame import InterpretedGenerator
from fineline.frames.graph_breaks import Finished
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.policy.marks import wrapped
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.releases import bound_apply
from fineline.tracing.interp import InterpreterOptions
from fineline.tracing.lessons import Lessons
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.tracebacks import is_own

_AWAITED = CO_COROUTINE | CO_ASYNC_GENERATOR
_LATER = CO_GENERATOR | _AWAITED


def _apply(fn, *args, **kwargs):  # type: ignore[no-untyped-def]  # captured
    return fn(*args, **kwargs)


def _applying(code: types.CodeType) -> Any:
    """Returns an ``_apply`` for functions with that code, with their name and, for messages, their place."""
    apply: Any = types.FunctionType(_apply.__code__, _apply.__globals__, code.co_name)
    apply.__qualname__, apply.__wrapped__ = code.co_qualname, types.SimpleNamespace(__code__=code)
    return apply


class FrameRunner:
    """Calls functions whose own frame is interpreted without capture; their Python callees become regions, kept here.

    Of an autograd function, the forward becomes a region.
    """

    __name__ = "its own frame runs in Python"

    def __init__(self, make_region: Callable[[], Callable | None], options: InterpreterOptions, lessons: Lessons) -> None:
        # A weak method: the region owns this object.
        self.make_region = make_region
        self.options, self.lessons = options, lessons
        # By the code of the frame, or the autograd function, and that of its callee, or the module: the entry keeps both alive.
        self._children: dict[tuple[int, int], tuple[Any, Any, Any]] = {}
        # Autograd functions: the forward of each, and a subclass for it.
        self._functions: dict[type, tuple[Any, type]] = {}

    def forget(self) -> None:
        """Drops the regions of callees."""
        self._children.clear()
        self._functions.clear()

    def __call__(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        target = wrapped(target)
        fn: Any = target
        values = list(args)
        trace = SegmentTrace(self)
        trace.active = False
        if is_a(fn, nn.Module) and type(fn).__call__ is nn.Module.__call__ and no_hooks(trace, fn):
            fn = fn.forward
        if is_a(fn, types.MethodType):
            fn, values = fn.__func__, [fn.__self__, *values]
        if not is_a(fn, types.FunctionType) or fn.__code__.co_flags & _AWAITED:
            return target(*args, **kwargs)
        interp = Interpreter(self.options, self.lessons, trace=trace, call_out=functools.partial(self._call_out, fn.__code__))
        try:
            interp.eager.frame = interp.push_function(None, fn, values, kwargs)
            result = interp.run()
        except Finished as done:
            result = done.value
        finally:
            interp.eager.frame = interp.frame = None
        # Each step of a generator runs in such a frame.
        return real_generator(result) if type(result) is InterpretedGenerator else result

    def calling(self, target: types.FunctionType, /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function in Python; the functions among its arguments become regions."""
        code = target.__code__
        return target(*[self._given(code, a) for a in args], **{name: self._given(code, a) for name, a in kwargs.items()})

    def apply(self, cls: Any, /, *args: Any) -> Any:
        """Calls ``cls.apply`` of an ``autograd.Function``; its forward becomes a region."""
        return bound_apply(self._function(cls))(*args)

    def _function(self, cls: Any) -> Any:
        """Returns a subclass of ``cls``, with its name, whose forward is a region."""
        known, found = self._functions.get(cls, (None, None))
        if known is not cls.forward:
            region = self._given(cls, cls.forward)
            # PyTorch asks for the defaults of its parameters.
            forward = functools.wraps(cls.forward)(lambda *args: region(*args))
            names = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
            found = type(cls)(cls.__name__, (cls,), {**names, "forward": staticmethod(forward)})
            self._functions[cls] = cls.forward, found
        return found

    def _given(self, caller: object, fn: Any) -> Any:
        if type(fn) is not types.FunctionType or fn.__code__.co_flags & _LATER:
            return fn
        return functools.partial(self._child(caller, fn.__code__, None), fn)

    # A trace asks these of its interpreter. Nothing is captured.
    frame = None

    def fail(self, error: str, text: str, hint: bool) -> None:
        """Reports nothing: no read is guarded."""

    def _call_out(self, caller: types.CodeType, fn: Any, args: list, kwargs: dict | None) -> Callable[[], Any] | None:
        """Returns a function that makes a call of the frame; None if the interpreter runs the call."""
        kwargs = kwargs or {}
        if is_a(fn, nn.Module):
            region = self._child(caller, fn, fn)
            return lambda: region(*args, **kwargs)
        if is_own(fn.__code__):
            return None
        later, torchs = fn.__code__.co_flags & _LATER, (fn.__module__ or "").partition(".")[0] == "torch"
        if later or torchs or classify_torch(fn) not in (None, "python"):
            return lambda: fn(*args, **kwargs)
        applied = self._child(caller, fn.__code__, None)
        return lambda: applied(fn, *args, **kwargs)

    def _child(self, caller: object, key: Any, fn: Callable | None) -> Any:
        """Returns a region for ``fn``; if that is None, one whose first argument is a function with the code ``key``."""
        found = self._children.get((id(caller), id(key)))
        if found is None:
            found = self._children[id(caller), id(key)] = (caller, key, self._made(fn or _applying(key)))
        return found[2]

    def _made(self, fn: Callable) -> Callable:
        make = self.make_region()
        return make(fn) if make is not None else fn
