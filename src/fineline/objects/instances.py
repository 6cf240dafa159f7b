"""Instances that the captured code creates: the work of ``type.__call__``."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fineline.cpython import protocols
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.objects import c_access, c_calls
from fineline.objects.iterator_stand_ins import KINDS
from fineline.objects.polyfills import POLYFILLS
from fineline.objects.type_info import type_info
from fineline.tracing.interp import Call, Interp
from fineline.tracing.segment_trace import PARTIAL

C_NEW = IdentitySet(
    t.__new__
    for t in (object, list, dict, set, deque, OrderedDict, defaultdict, BaseException, tuple, frozenset, int, float, str, bytes, property)
)
# The constructor of PyTorch's tensors, which their subclasses inherit or call.
TENSOR_NEW: Any = Tensor.__new__
KEYWORDS = PARTIAL[2]
# The functions that read the iterable from which such an instance is created.
ITEMS_OF: Mapping[Any, Callable] = MappingProxyType({tuple.__new__: protocols.listed, frozenset.__new__: POLYFILLS[set]})


def make_instance(call: Call) -> Frame | None:
    """Does the work of ``type.__call__``: creates an instance and initialises it."""
    interp, trace, cls = call.interp, call.trace, call.fn
    args, kwargs = call.args, call.kwargs
    info = type_info(trace, cls)
    new = info.look(trace, "__new__")[1]
    new = new.__func__ if is_a(new, staticmethod) else new
    if not is_a(init := info.look(trace, "__init__")[1], (types.FunctionType, types.WrapperDescriptorType)):
        raise call.graph_break("FL412", f"the __init__ of {cls.__qualname__} is a {type(init).__name__}")
    if trace.active and info.look(trace, "__del__")[1] is not None:
        # No program repeats the end of an object that it does not create.
        raise call.graph_break("FL438", f"a {cls.__qualname__} has a __del__, which runs when nothing refers to it")
    initialise = Delivery(_initialise, call.then, cls, args, kwargs)
    if is_a(new, types.FunctionType) or new is TENSOR_NEW:
        interp.class_value(new)
        return interp.call(call.frame, new, [cls, *args], kwargs, initialise)
    if new is functools.partial.__new__ and all([type(a) not in KINDS for a in (*args, *(kwargs or {}).values())]):
        return _make_partial(call, initialise)
    if new not in C_NEW and not issubclass(cls, BaseException):
        raise call.graph_break("FL422", f"making a {cls.__qualname__}, whose memory C lays out")
    if new is object.__new__:
        obj = cls.__new__(cls) if init is not object.__init__ else cls.__new__(cls, *args, **(kwargs or {}))
    else:
        # The other classes are created empty, and their ``__init__`` fills them.
        at_once = not issubclass(cls, (list, dict, set, deque, property))
        if at_once and not all([c_access.may_walk(trace, a) for a in args]):
            if new in ITEMS_OF and len(args) == 1 and not kwargs and not is_a(args[0], Tensor):
                return interp.call(call.frame, ITEMS_OF[new], args, None, Delivery(_made_of, initialise, cls))
            raise call.graph_break("FL422", f"making a {cls.__qualname__} from an object that C reads")
        if at_once and new is not BaseException.__new__:
            for a in args:
                trace.expand(a)
        obj = new(cls, *args, **(kwargs or {})) if at_once else new(cls)
    trace.made.add(obj)
    return _initialise(interp, call.frame, obj, call.then, cls, args, kwargs)


def make_structseq(call: Call) -> Frame | None:
    """Makes a structseq from the items of an iterable; where C takes more, or refuses the argument, C makes it."""
    if len(call.args) != 1 or call.kwargs or getattr(type(call.args[0]), "__iter__", None) is None:
        return c_calls.call_c(call)
    return call.instead(tuple, [call.args[0]], None, _structseq_of, call.fn)


def _structseq_of(interp: Interp, f: Frame, items: tuple, then: Delivery | None, cls: Any) -> Frame | None:
    return interp.finish(f, interp.trace.fresh(cls(items)), then)


def _make_partial(call: Call, initialise: Delivery) -> Frame | None:
    """Creates an instance of a subclass of ``functools.partial``."""
    trace = call.trace
    if call.args and is_a(call.args[0], functools.partial):
        # Its arguments become arguments of the new one.
        trace.load_partial(call.args[0])
    obj = functools.partial.__new__(call.fn, *call.args, **(call.kwargs or {}))
    trace.made.update([obj, KEYWORDS.__get__(obj)])
    return call.interp.finish(call.frame, obj, initialise)


def _made_of(interp: Interp, f: Frame, items: Any, then: Delivery | None, cls: type) -> Frame | None:
    """Creates an instance of a subclass of tuple or frozenset from the items of an iterable."""
    obj: Any = (tuple if issubclass(cls, tuple) else frozenset).__new__(cls, items)
    interp.trace.made.add(obj)
    return interp.finish(f, obj, then)


def _initialise(interp: Interp, f: Frame, obj: Any, then: Delivery | None, cls: type, args: list, kwargs: dict | None) -> Frame | None:
    """Calls ``__init__`` of a new object, after ``__new__``."""
    if not is_a(obj, cls):
        return interp.finish(f, obj, then)
    trace = interp.trace
    init = type_info(trace, type(obj)).look(trace, "__init__")[1]
    if init is object.__init__ and not is_a(obj, BaseException):
        return interp.finish(f, obj, then)
    if is_a(obj, BaseException) and not is_a(init, types.FunctionType):
        init(obj, *args, **(kwargs or {}))
        return interp.finish(f, obj, then)
    return interp.call(f, init, [obj, *args], kwargs, Delivery(_initialised, then, obj))


def _initialised(interp: Interp, f: Frame, value: Any, then: Delivery | None, obj: Any) -> Frame | None:
    if value is not None:
        raise TypeError(f"__init__() should return None, not '{type(value).__name__}'")
    return interp.finish(f, obj, then)
