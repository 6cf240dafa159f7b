"""Functions that break the graph over and over without an operator in between: each is left to run eagerly, and capture goes on behind it."""

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

# So many graph breaks in a frame, and in those that it calls, with nothing for a graph between them.
MOST_FRUITLESS = 12
# So many operators in a function are not worth its graph breaks: planning functions sum up a mask before they go on in NumPy.
FEW_OPERATORS = 8
STORM = f"met {MOST_FRUITLESS} graph breaks with no tensor operator between them"


def frame_in_storm(interp: Interp, declared: bool) -> Frame | None:
    """Returns the frame that only leads to graph breaks, if there is one. The current break counts unless the user has ``declared`` it."""
    calls = interp.trace.recorder.calls
    for f in stack(interp.frame):
        fruitless, operators = f.extras.breaks
        f.own_extras().breaks = BreakCounts(1 if declared or calls else fruitless + 1, operators + calls - f.began)
        f.began = 0
    # The most breaks that a function inside has met: it is still to be found itself, and what calls it leads to more than breaks.
    found, inside = interp.frame, 0
    while found is not None and found.extras.breaks.fruitless <= MOST_FRUITLESS:
        inside = max(inside, found.extras.breaks.fruitless * _can_be_left(found))
        found = found.back
    # One inside that has met half as many breaks is likely to be where most of them are; with one outside left, it would not be captured.
    if declared or found is None or inside * 2 > found.extras.breaks.fruitless or not _can_be_left(found):
        return None
    # Its caller is the user's own, and it works on no tensors so far.
    outer = any([not is_own(f.info.code) for f in stack(found.back)])
    return found if outer and not has_tensors([*[found.local[i] for i in found.info.live_at(found.ip)], *found.stack]) else None


def _can_be_left(f: Frame) -> bool:
    return f.extras.generator is None and f.extras.namespace is None and not is_own(f.info.code)


def leave(interp: Interp, f: Frame) -> bool:
    """Runs the rest of a frame without capture, and makes its function one eager call from now on; returns whether that is new."""
    f.then = Delivery(_returned, f.then)
    if f.extras.on_stop is not None:
        f.own_extras().on_stop = Delivery(_stopped, f.extras.on_stop)
    for caller in stack(f.back):
        # To these it is one call.
        caller.own_extras().breaks = caller.extras.breaks._replace(fruitless=1)
    few = f.extras.breaks.operators <= FEW_OPERATORS
    return interp.lessons.functions.leave(f.info.code, EagerFunction(few, "FL436", f"{STORM} before"))


def _returned(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    if not interp.eager.resumes or interp.trace.active:
        return interp.finish(f, value, then)
    raise GraphBreak(_given, (value,), None, "FL430", "a function that was left has returned")


def _stopped(interp: Interp, f: Frame, value: Any, then: Delivery | None) -> Frame | None:
    """Returns from a left function that has ended an iteration: the consumer learns this after the instruction that raises."""
    return interp.push_function(f, protocols.same, [value], None, Delivery(_returned, then))


def _given(value: Any) -> Any:
    return value


def call_eager_function(interp: Interp, fn: FunctionType, args: list, kwargs: dict | None) -> None:
    """Breaks the graph at a call of a function that was left, if it works on no tensors, or does little with them."""
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
