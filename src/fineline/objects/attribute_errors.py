"""Adds the object and the name to an AttributeError that Python code raises during an attribute read, as C does: programs read them.

Errors that C raises have both. Errors from elsewhere (from before the call, or from a disabled function) are not handled as C does it.
"""

from __future__ import annotations

from typing import Any

from fineline.exception_slots import NAME, OBJ
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.kinds import is_a
from fineline.objects.attribute_reads import load_attr, load_method
from fineline.tracing.interp import Interp


def LOAD_ATTR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj, name = f.stack.pop(), f.info.names[arg]
    frame = load_attr(interp, f, obj, name)
    if frame is not None and frame.back is f:
        # `left` recognizes the read by this delivery.
        frame.then = Delivery(_gives, frame.then, obj, name)
    return frame


def LOAD_METHOD(interp: Interp, f: Frame, arg: int) -> Frame | None:
    obj, name = f.stack.pop(), f.info.names[arg]
    frame = load_method(interp, f, obj, name)
    if frame is not None and frame.back is f:
        frame.then = Delivery(_gives, frame.then, obj, name)
    return frame


def read_attribute(interp: Interp, f: Frame, obj: Any, name: str, then: Delivery | None) -> Frame | None:
    """Delivers ``getattr(obj, name)``."""
    frame = load_attr(interp, f, obj, name, then)
    if frame is not None and frame.back is f:
        frame.then = Delivery(_gives, frame.then, obj, name)
    return frame


def _gives(interp: Interp, f: Frame, value: Any, then: Delivery | None, obj: Any, name: str) -> Frame | None:
    return interp.finish(f, value, then)


def left(interp: Interp, f: Frame, e: BaseException) -> None:
    """Adds the object and the name to an AttributeError that leaves the frame of an attribute read, unless it has one of them."""
    if f.then is not None and f.then.function is _gives and is_a(e, AttributeError) and e not in interp.trace.sources:
        if NAME.__get__(e) is None and OBJ.__get__(e) is None:
            obj, name = f.then.data
            OBJ.__set__(e, obj)
            NAME.__set__(e, name)
