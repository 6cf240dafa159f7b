"""The facts that C adds to an AttributeError that leaves a read: the object, and the name of the attribute."""

from __future__ import annotations

import types
from typing import Any

from fineline.exception_slots import NAME, OBJ, names_attribute
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.kinds import is_a
from fineline.objects.attribute_reads import load_attr, load_method, read_member
from fineline.objects.type_info import MISSING, special_method
from fineline.tracing.interp import Interp
from fineline.tracing.mutation_log import EMPTY


def LOAD_ATTR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj, name = f.stack.pop(), f.info.names[arg]
    try:
        frame = load_attr(interp, f, obj, name)
    except (AttributeError, GraphBreak) as e:
        _tell(interp, e, obj, name)
        raise
    if frame is not None and frame.back is f:
        frame.then = Delivery(_gives, frame.then, obj, name)
    return frame


def LOAD_METHOD(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj, name = f.stack.pop(), f.info.names[arg]
    try:
        frame = load_method(interp, f, obj, name)
    except (AttributeError, GraphBreak) as e:
        if not _unaided(interp, obj):
            _tell(interp, e, obj, name)
        raise
    if frame is not None and frame.back is f and not _unaided(interp, obj):
        frame.then = Delivery(_gives, frame.then, obj, name)
    return frame


def read_attribute(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Frame | None:
    """Delivers ``getattr(obj, name)``."""
    try:
        return Delivery(_gives, then, obj, name).of(load_attr, interp, f, obj, name)
    except (AttributeError, GraphBreak) as e:
        _tell(interp, e, obj, name)
        raise


def _unaided(interp: Interp, obj: Any) -> bool:
    """Returns whether LOAD_METHOD looks an attribute up itself, as `object` does: then it adds nothing to what a property raises."""
    t = type(obj)
    if t is super or is_a(obj, (type, types.ModuleType)):
        return False
    own, fallback = [special_method(interp.trace, t, method) for method in ("__getattribute__", "__getattr__")]
    # Where something is captured, None stands for what is not there.
    return own is object.__getattribute__ and (fallback is None or fallback is MISSING)


def _gives(interp: Interp, f: Frame, value: Any, then: Delivery | None, obj: Any, name: str) -> Frame | None:
    """Delivers the attribute that a frame has read: passed as its ``then``, by which `left` knows such frames."""
    return interp.finish(f, value, then)


def left(interp: Interp, f: Frame, e: BaseException) -> None:
    """Adds the object and the name to an AttributeError that leaves a frame that reads an attribute."""
    if f.then is not None and f.then.function is _gives and is_a(e, AttributeError):
        _tell(interp, e, *f.then.data)


def _tell(interp: Interp, e: Any, obj: Any, name: str) -> None:
    """Gives ``e`` the name and the object, unless it has any; a graph break at which the user's code reads the attribute leaves that to C."""
    if is_a(e, GraphBreak):
        if is_a(e.fn, types.FunctionType) and (e.then is None or e.then.function is _gives):
            e.fn, e.args_ = getattr, (obj, name)
        return
    trace = interp.trace
    src = trace.sources.get(e) if trace.active else None
    # What was there before the call may have been told by an earlier one.
    named = any([read_member(interp, e, descr, descr.__name__) is not None for descr in (NAME, OBJ)]) if src is not None else names_attribute(e)
    if named:
        return
    for descr, value in ((NAME, name), (OBJ, obj)):
        if src is not None:
            trace.mutations.note_slot(e, src, descr, EMPTY)
        descr.__set__(e, value)
