"""Retries without values that no program can rebuild at a graph break: from the next call on, eager code makes them between graphs."""

from __future__ import annotations

import itertools
import os
from types import CodeType

import torch
from torch import Tensor

from fineline.bytecode.code import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from fineline.codegen.frame_state import Const, roots_of
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.frames.stub_frames import is_own, user_stack
from fineline.interp.interpreter import Interpreter
from fineline.kinds import is_a
from fineline.region.entry_point import EntryPoint
from fineline.region.interface import CapturingRegion
from fineline.report.events import Detail, Event
from fineline.stacks import is_library, is_standard_library
from fineline.tracing.lessons import EagerFunction, Lessons

_SUSPENDED = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
# The code of torch.func in Python; `functional_call`, which is there too, enters no transform.
_TRANSFORMS = os.path.join(os.path.dirname(torch.__file__), "_functorch", "")
_NO_TRANSFORM = "functional_call.py"
# Errors that would only recur at the next capture.
HOPELESS = frozenset({"FL427", "FL428"})


def make_outside(region: CapturingRegion, entry_point: EntryPoint, called_at: tuple[CodeType, int] | None) -> bool:
    """Makes the call at ``called_at`` run eagerly between graphs from the next capture on; returns whether this is known to help."""
    if called_at is None or called_at in region.lessons.eager_sites:
        return False
    region.lessons.eager_sites.add(called_at)
    if entry_point is not region.entry:
        # The programs that lead here make the value inside.
        start_anew(region)
    return True


def leaves_out(region: CapturingRegion, entry_point: EntryPoint, args: tuple, kwargs: dict) -> bool:
    """Makes a function that needs a program for each value run eagerly from the next capture on; returns whether there is one."""
    # An eager call is a graph break, which has to be allowed.
    options = region.options
    if options.limit_is_error or options.error_on_recompile or options.breaks != "any":
        return False
    found = entry_point.failing(args, kwargs)
    place = found[0].reads.place(found[1]) if found is not None else None
    name = _leave_out(region, entry_point, (*args, *kwargs.values()), place[0].code if place is not None else None)
    if not name:
        return False
    text = f"{name} has a program for each value, {region.budget.limit} so far; from the next call on it runs eagerly"
    region.reports.note_at(entry_point, "eager", "FL448", text)
    start_anew(region)
    return True


def _leave_out(region: CapturingRegion, entry_point: EntryPoint, live: tuple, reader: CodeType | None) -> str:
    """Makes a function that has a program for each value run eagerly from now on, as one call; returns its name, "" if there is none.

    It is the outermost library function around ``entry_point``, such as `json.dumps`, or else the user's innermost one, if no tensor is
    alive there; or else the ``reader`` of the value, if that is in the standard library. ``live``: the live values at the entry point.
    """
    if not region.budget.may_drop_programs:
        return ""
    frames = entry_point.frame_state.called_frames() if entry_point.frame_state is not None else []
    of_library = list(itertools.takewhile(lambda shape: is_own(shape.info.code) or is_library(shape.info.code.co_filename), frames))
    for n in range(len(of_library) or min(len(frames), 1), 0, -1):
        shape = frames[n - 1]
        inside = [root for each in frames[:n] for root in roots_of((each.local, each.stack))]
        left = shape.generator < 0 and shape.namespace == Const(None) and not any([is_a(live[root], Tensor) for root in inside])
        if left and _leave(region, shape.info.code):
            return str(shape.info.code.co_qualname)
    return str(reader.co_qualname) if reader is not None and is_standard_library(reader.co_filename) and _leave(region, reader) else ""


def _leave(region: CapturingRegion, code: CodeType) -> bool:
    if code is getattr(region.fn, "__code__", None) or is_own(code) or code.co_flags & _SUSPENDED:
        return False
    return region.lessons.functions.leave(code, EagerFunction(False, "FL448", "has a program for each value of what it is given"))


def given_up(region: CapturingRegion, error: str, text: str) -> None:
    """Handles the consequences of ``error``, which ended a capture, for later calls: they run eagerly, or all programs are dropped."""
    if text and error in HOPELESS and not region.lessons.eager_sites:
        region.eager.always(text)
    if error == "FL439":
        code = getattr(region.fn, "__code__", None)
        if code in region.lessons.functions.eager:
            region.eager.always(region.lessons.functions.eager[code].reason)
        start_anew(region)


def start_anew(region: CapturingRegion) -> None:
    """Drops all programs, so that the next call is captured from its start. The compiled graphs stay, and are used again."""
    region.entry_points.drop_programs()
    region.budget.start_anew()


def stop_in_debugger(region: CapturingRegion, interp: Interpreter, graph_break: GraphBreak, place: tuple[str, int]) -> None:
    """Makes all later calls, and the rest of this one, run in Python: a debugger would see frames that replace the user's."""
    region.eager.always(graph_break.reason)
    # Then no program leads here any more.
    start_anew(region)
    stack: Detail = {"stack": user_stack(interp.frame)}
    region.reports.note(Event("eager", graph_break.error, f"{graph_break.reason}; from here on calls run eagerly", *place, detail=stack))


def transform_call(f: Frame | None) -> tuple[CodeType, int] | None:
    """Returns where the user's code calls the outermost transform of torch.func around ``f``; None if no call does."""
    found = None
    while f is not None and f.back is not None:
        caller = f.back
        if _is_of_transforms(f.info.code) and not _is_of_transforms(caller.info.code) and _called(caller):
            found = caller.info.code, caller.ip - 1
        f = caller
    return found


def _is_of_transforms(code: CodeType) -> bool:
    return code.co_filename.startswith(_TRANSFORMS) and not code.co_filename.endswith(_NO_TRANSFORM)


def _called(f: Frame) -> bool:
    """Returns whether a frame is at a call."""
    return f.info.instructions[f.ip - 1].name in ("CALL", "CALL_FUNCTION_EX")


def move_out(lessons: Lessons, f: Frame | None) -> None:
    """Makes the innermost user call around ``f`` run eagerly as a whole, because the origin of a value is unknown."""
    while f is not None and f.back is not None:
        caller = f.back
        key = (caller.info.code, caller.ip - 1)
        if _called(caller) and key not in lessons.eager_sites and not is_own(caller.info.code):
            lessons.eager_sites.add(key)
            return
        f = caller
