"""Functions that break the graph over and over without an operator in between: each is left to run eagerly, and capture goes on behind it."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType
from typing import Any

from torch import Tensor

from fineline.capture.frame import Frame
from fineline.capture.places import is_own
from fineline.capture.signals import Border
from fineline.capture.watch import known_code
from fineline.kinds import is_a

# So many graph breaks in a frame, and in those that it calls, with nothing for a graph between them.
MOST_IDLE = 12
IDLE = f"met {MOST_IDLE} graph breaks with no tensor operator between them"


def stack(f: Frame | None) -> Iterator[Frame]:
    """The frames, the innermost first."""
    while f is not None:
        yield f
        f = f.back


def idle_frame(vm: Any, declared: bool) -> Frame | None:
    """At a border, which counts unless the user has ``declared`` it: the frame that does nothing but lead to such, if there is one."""
    fresh = declared or vm.cap.recorder.calls > 0
    for f in stack(vm.frame):
        f.idle = 1 if fresh else f.idle + 1
    found = next((f for f in stack(vm.frame) if f.idle > MOST_IDLE), None)
    if declared or found is None or found.generator is not None or found.namespace is not None or is_own(found.info.code):
        return None
    # Its caller is the user's own, and it works on no tensors so far.
    outer = any([not is_own(f.info.code) for f in stack(found.back)])
    return found if outer and not has_tensors([*found.local, *found.stack]) else None


def leave(vm: Any, f: Frame) -> None:
    """The frame is left to the interpreter; where it returns, capture goes on, and from now on its function is one call."""
    f.then, f.data = _returned, (f.then, f.data)
    for caller in stack(f.back):
        # To these it is one call.
        caller.idle = 1
    vm.options.idle.add(f.info.code)


def _returned(vm: Any, f: Frame, value: Any, state: tuple) -> Frame | None:
    then, data = state
    if vm.resume is None or vm.cap.active:
        return vm.finish(f, value, then, data)
    raise Border(_given, (value,), None, "FL430", "a function that was left has returned").to(then, data)


def _given(value: Any) -> Any:
    return value


def call_idle(vm: Any, fn: FunctionType, args: list, kwargs: dict | None, then: Any, data: Any) -> None:
    """A call of a function that was left: a border, if it works on no tensors."""
    if vm.cap.active and vm.opaque is None and not has_tensors((*args, *(kwargs or {}).values())):
        known_code(vm.cap, fn)
        raise Border(fn, tuple(args), kwargs, "FL436", f"{fn.__qualname__} {IDLE} before").to(then, data)


def has_tensors(values: Any) -> bool:
    """Whether there are tensors among ``values``, or in containers there."""
    for v in values:
        if is_a(v, Tensor) or (type(v) in (list, tuple) and any([is_a(x, Tensor) for x in v])):
            return True
        if type(v) is dict and any([is_a(x, Tensor) for x in v.values()]):
            return True
    return False
