"""``disable(recursive=False)``: a function's own frame runs in Python, and what it calls is captured again."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch import nn

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.capture.capture import Capture
from fineline.capture.machine import Machine
from fineline.capture.signals import Finished
from fineline.capture.traces import is_own
from fineline.graph.torch_table import classify_torch
from fineline.kinds import is_a

_LATER = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_NO_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")


def _apply(fn, *args, **kwargs):  # type: ignore[no-untyped-def]  # captured
    return fn(*args, **kwargs)


class FrameRunner:
    """Calls ``target``, whose frame is interpreted without capture; its Python callees become regions, kept here."""

    def __init__(self, target: Any, make_region: Callable[[], Callable | None], options: Any) -> None:
        self.target = target
        # A weak method: the region owns this object.
        self.make_region = make_region
        self.options = options
        # By code object (which the entry keeps alive), or by module.
        self.children: dict[int, tuple[Any, Any]] = {}
        self.__name__ = getattr(target, "__name__", type(target).__name__)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        fn: Any = self.target
        values = list(args)
        if is_a(fn, nn.Module) and not any(fn.__dict__.get(name) for name in _NO_HOOKS):
            fn = fn.forward
        if is_a(fn, types.MethodType):
            fn, values = fn.__func__, [fn.__self__, *values]
        if not is_a(fn, types.FunctionType) or fn.__code__.co_flags & _LATER:
            return self.target(*args, **kwargs)
        vm = Machine(self.options, Capture(self))
        vm.cap.active = False
        vm.call_out = self._call_out
        try:
            frame = vm.push_function(None, fn, values, kwargs)
            vm.eager_frame = frame
            return vm.run(frame)
        except Finished as done:
            return done.value
        finally:
            vm.call_out = vm.eager_frame = vm.frame = None

    frame = None  # what a Capture asks of its machine

    def _call_out(self, fn: Any, args: list, kwargs: dict | None) -> Callable[[], Any] | None:
        """What runs a call that the frame makes itself; None: the interpreter is to."""
        kwargs = kwargs or {}
        if is_a(fn, nn.Module):
            region = self._child(fn, fn)
            return lambda: region(*args, **kwargs)
        if is_own(fn.__code__):
            return None
        later, torchs = fn.__code__.co_flags & _LATER, (fn.__module__ or "").partition(".")[0] == "torch"
        if later or torchs or classify_torch(fn) not in (None, "python"):
            return lambda: fn(*args, **kwargs)
        applied = self._child(fn.__code__, _apply)
        return lambda: applied(fn, *args, **kwargs)

    def _child(self, key: Any, fn: Callable) -> Any:
        found = self.children.get(id(key))
        if found is None:
            make = self.make_region()
            found = self.children[id(key)] = (key, make(fn) if make is not None else fn)
        return found[1]
