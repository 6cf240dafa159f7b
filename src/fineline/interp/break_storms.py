"""Break storms: functions that break the graph many times without an operator in between run eagerly, and capture continues after them."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from torch import Tensor

from fineline.cpython import protocols
from fineline.frames.frame import BreakCounts, Frame, stack
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.frames.stub_frames import is_own
from fineline.kinds import is_a
from fineline.tracing.identity_guards import known_code
from fineline.tracing.interp import Interp
from fineline.tracing.lessons import EagerFunction

# The most graph breaks in a frame, and in those that it calls, without an operator between them.
MOST_FRUITLESS = 12
# The most operators in a function that is still left because of its graph breaks: planning functions sum up a mask, then continue in NumPy.
FEW_OPERATORS = 8
STORM = f"met {MOST_FRUITLESS} graph breaks with no tensor operator between them"


def frame_in_storm(interp: Interp, declared: bool) -> Frame | None:
    """Returns the frame that only leads to graph breaks; None if there is none. The current break counts unless the user has ``declared`` it."""
    calls = interp.trace.recorder.calls
    # Functions that plan with NumPy only read tensors.
    plans = calls == interp.trace.recorder.array_calls
    for f in stack(interp.frame):
        fruitless, operators = f.extras.breaks
        f.own_extras().breaks = BreakCounts(1 if declared or not plans else fruitless + 1, operators + calls - f.began)
        f.began = 0
    # The most breaks of a function inside: it may still be found itself, and then its callers lead to more than breaks.
    found, inside = interp.frame, 0
    while found is not None and found.extras.breaks.fruitless <= MOST_FRUITLESS:
        inside = max(inside, found.extras.breaks.fruitless * _can_be_left(found))
        found = found.back
    # A function inside with half as many breaks probably causes most of them; leaving an outer one would leave that too.
    if declared or found is None or inside * 2 > found.extras.breaks.fruitless or not _can_be_left(found):
        return None
    # The function has a caller in the user's code, and works on no tensors so far.
    outer = any([not is_own(f.info.code) for f in stack(found.back)])
    return found if outer and not has_tensors(_live_values(found)) else None


def _live_values(f: Frame) -> list[Any]:
    dead = f.info.dead_on_stack(f.ip)
    return [*[f.local[i] for i in f.info.live_at(f.ip)], *[v for i, v in enumerate(f.stack) if i not in dead]]


def _can_be_left(f: Frame) -> bool:
    return f.extras.generator is None and f.extras.namespace is None and not is_own(f.info.code)


def leave(interp: Interp, f: Frame) -> bool:
    """Runs the rest of a frame without capture, and makes its function one eager call from now on; returns whether this is new."""
    f.then = Delivery(_returned, f.then)
    if f.extras.on_stop is not None:
        f.own_extras().on_stop = Delivery(_stopped, f.extras.on_stop)
    for caller in stack(f.back):
        # For the callers, all its breaks are one.
        caller.own_extras().breaks = caller.extras.breaks._replace(fruitless=1)
    few = f.extras.breaks.operators <= FEW_OPERATORS
    return interp.lessons.functions.leave(f.info.code, EagerFunction(few, "FL436", f"{STORM} before"))


def _returned(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    if not interp.eager.resumes or interp.trace.active:
        return interp.finish(f, value, then)
    raise GraphBreak(_given, (value,), None, "FL430", "a function that was left has returned")


def _stopped(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    """Returns from a left function that has ended an iteration: the consumer sees this after the instruction that raises."""
    return interp.push_function(f, protocols.same, [value], None, Delivery(_returned, then))


def _given(value: Any) -> Any:
    return value


def call_eager_function(interp: Interp, fn: FunctionType, args: list, kwargs: dict | None) -> None:
    """Breaks the graph at a call of a function that was left, if it works on no tensors, or has few operators."""
    known = interp.lessons.functions.eager[fn.__code__]
    if interp.trace.active and interp.nested.opaque is None and (known.always or not has_tensors((*args, *(kwargs or {}).values()))):
        known_code(interp.trace, fn)
        raise GraphBreak(fn, tuple(args), kwargs, known.error, f"{fn.__qualname__} {known.reason}")


def has_tensors(values: Any) -> bool:
    """Returns whether there are tensors among ``values``, or in containers there."""
    for v in values:
        if is_a(v, Tensor) or (type(v) in (list, tuple) and any([is_a(x, Tensor) for x in v])):
            return True
        if type(v) is dict and any([is_a(x, Tensor) for x in v.values()]):
            return True
    return False
