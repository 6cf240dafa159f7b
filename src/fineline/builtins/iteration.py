"""Handlers of iter(), next(), zip(), range() and the methods of generators."""

from __future__ import annotations

import builtins
import collections
import enum
import itertools
import types
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.builtins.operators import call_special
from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.version import CLOSE_RETURNS, CURRENT
from fineline.cpython import protocols
from fineline.cpython.polyfill_iterators import RangeIterator
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.guards.source import Source
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.objects import c_access, c_calls
from fineline.objects.carried_iterators import STANDING, CarriedIterator, EndsAfter, FollowingItem, containers_of
from fineline.objects.deferred_texts import given
from fineline.objects.list_iterators import next_item
from fineline.objects.polyfills import ITER_ARRAY, ITER_CALLABLE, ITER_SEQUENCE
from fineline.objects.type_info import ABSENT, MISSING, in_python, raw_lookup, special_method, type_info
from fineline.policy.break_settings import breaks_here
from fineline.tensor_ops.rules import call_ruled
from fineline.tensor_ops.torch_functions import call_override, overridden
from fineline.tracing.interp import Call, Handler, Interp

TENSOR_ITER = Tensor.__iter__
# Iterators that make a new tuple for each item.
TUPLES_OF: frozenset[type] = frozenset({enumerate, zip, itertools.zip_longest, type(iter({}.items())), type(reversed({}.items()))})


def _all_parts(t: Tensor) -> tuple:
    """Returns the items of a tensor. ``tuple(t)`` would also read the length."""
    return tuple(iter(t))


def iterate(interp: Interp, f: Frame, obj: Any, then: Delivery | None = None) -> Frame | None:
    """Delivers ``iter(obj)``."""
    trace = interp.trace
    t = type(obj)
    if t is InterpretedGenerator or (t in c_access.ITERATORS and obj not in trace.sources):
        return interp.finish(f, obj, then)
    if not trace.active:
        method = raw_lookup(t, "__iter__")
        if in_python(method) and not is_a(obj, (Tensor, type)):
            return call_special(interp, f, method, obj, "__iter__", then=Delivery(_an_iterator, then))
        return interp.finish(f, interp.native(iter, (obj,), None), then)
    if t in c_access.CONTAINERS or t in c_calls.VIEWS or t in (str, bytes, range, torch.Size):
        return _native_iter(interp, f, obj, then)
    if is_a(obj, Tensor):
        method = type_info(trace, interp.type_of(obj)).look(trace, "__iter__")[1]
        if method is not TENSOR_ITER and is_a(method, types.FunctionType):
            return interp.call(f, method, [obj], None, Delivery(_an_iterator, then))
        if overridden(interp, (obj,)):
            return call_override(interp, f, TENSOR_ITER, (obj,), None, Delivery(_an_iterator, then))
        rule = interp.rules.decide(TENSOR_ITER, (obj,)) if interp.rules is not None and interp.nested.opaque is None else None
        eagerly = rule if rule is not None and rule.verb in ("disable", "disable_frame", "disallow") else None
        if rule is not None and rule.verb != "trace" and eagerly is None:
            return call_ruled(Call(interp, f, TENSOR_ITER, [obj], None, then), rule)
        try:
            if eagerly is not None:
                call_ruled(Call(interp, f, TENSOR_ITER, [obj], None, None), eagerly)
            if obj.dim() == 0:
                iter(obj)
            parts = interp.tensors.operator(interp, Tensor.unbind, [obj, 0], None, True)
        except GraphBreak as b:
            # One break for all items, because an iterator from eager code would break the graph at each item.
            graph_break = GraphBreak(tuple, (obj,), None, b.error, b.reason)
            graph_break.rule = b.rule
            raise graph_break.to(Delivery(_native_iter, then)) from None
        it = iter(parts)
        trace.made.add(it)
        return interp.finish(f, it, then)
    if is_a(obj, enum.EnumMeta) and obj not in trace.classes.local:
        return interp.finish(f, iter(list(obj)), then)
    if t is np.ndarray and interp.tensors.may_list_numbers(interp, obj):
        return interp.call(f, ITER_ARRAY, [obj], None, Delivery(c_calls.stand_in, then))
    if t is np.ndarray and (rows := interp.tensors.array_rows(interp, obj)) is not None:
        it = iter(rows)
        trace.made.add(it)
        return interp.finish(f, it, then)
    info = type_info(trace, t)
    kind, method = info.look(trace, "__iter__")
    if in_python(method):
        return call_special(interp, f, method, obj, "__iter__", then=Delivery(_an_iterator, then))
    if method is not None:
        if is_a(obj, (list, tuple, dict, set, frozenset, collections.deque)):
            return _native_iter(interp, f, obj, then)
        if obj in trace.made and hasattr(t, "__next__"):
            return interp.finish(f, obj, then)
        raise GraphBreak(iter, (obj,), None, "FL415", f"iterating over a {t.__name__}")
    # A class whose ``__iter__`` is None has no iterator, even if it has items.
    if kind == ABSENT and is_a(info.look(trace, "__getitem__")[1], types.FunctionType):
        return interp.call(f, ITER_SEQUENCE, [obj], None, Delivery(c_calls.stand_in, then))
    return interp.finish(f, iter(obj), then)


def _an_iterator(interp: Interp, f: Frame, it: Any, then: Delivery | None) -> Frame | None:
    """Checks and delivers the result of an ``__iter__`` that is written in Python."""
    if not is_a(it, InterpretedGenerator) and special_method(interp.trace, type(it), "__next__") is MISSING:
        raise TypeError(f"iter() returned non-iterator of type '{type(it).__name__}'")
    return interp.finish(f, it, then)


def _native_iter(interp: Interp, f: Frame, obj: Any, then: Delivery | None) -> Frame | None:
    if interp.varying.unsteady and type(obj) is not list and interp.varying.contents_vary(interp, f, obj):
        raise GraphBreak(iter, (obj,), None, "FL448", f"a loop over a {type(obj).__name__} that holds more or less each time")
    try:
        if type(obj) is not list:
            interp.trace.expand(obj)
    except Exception as e:
        let_pass(e)
        raise GraphBreak(iter, (obj,), None, "FL413", str(e)) from None
    it = iter(obj)
    interp.trace.made.add(it)
    return interp.finish(f, it, then)


def _iterates_over_breaks(interp: Interp, f: Frame) -> bool:
    """Returns whether a loop or comprehension with graph breaks iterates over the result of the current instruction."""
    at = f.ip
    if f.info.instructions[at].name == "GET_ITER":
        at += 1
    elif f.info.instructions[at - 1].name != "GET_ITER":
        return False
    # A comprehension's function is called with the iterator, or its code is inlined.
    loop = f.info.loop_over(at)
    end = at + 2 if loop is None else f.info.instructions[loop].arg
    return any([at <= ip <= end for ip in interp.lessons.break_places.get(f.info.code, ())])


def _range(call: Call) -> Frame | None:
    """Handles range(). For a loop with graph breaks over symbols it makes a `RangeIterator`, so that iterations share programs."""
    interp, args = call.interp, call.args
    if (
        interp.backing.may_be_symbolic and not call.kwargs and call.then is None and 1 <= len(args) <= 3 and any([type(a) is torch.SymInt for a in args])
        and all([type(a) in (int, torch.SymInt) for a in args]) and _iterates_over_breaks(interp, call.frame) and breaks_here(interp.options.breaks) == "any"
    ):  # fmt: skip
        at, stop, step = (0, args[0], 1) if len(args) == 1 else (*args, 1)[:3]
        if type(step) is int and step:
            return call.instead(RangeIterator, [at, stop, step], None, c_calls.stand_in)
    return c_calls.call_c(call)


def _iter(call: Call) -> Frame | None:
    if len(call.args) == 1:
        return iterate(call.interp, call.frame, call.args[0], call.then)
    if not call.trace.active:
        return call.run_natively()
    return call.instead(ITER_CALLABLE, call.args, call.kwargs, c_calls.stand_in)


class Stepped:
    """One step of an iterator that ran eagerly."""

    __slots__ = ("ended", "value")
    MEMBER_TEXTS = MappingProxyType({"value": "the iterator's next item", "ended": "whether the iterator has ended"})

    def __init__(self, value: Any, ended: bool) -> None:
        self.value, self.ended = value, ended


def step_eagerly(it: Any, given: Any = None) -> Stepped:
    """Advances ``it`` by one item. ``given``: a value to send to a generator; None: nothing is sent."""
    try:
        return Stepped(next(it) if given is None else it.send(given), False)
    except StopIteration as stop:
        return Stepped(stop.value, True)


def _next(call: Call) -> Frame | None:
    if len(call.args) == 2:
        return call.instead(protocols.next_or, call.args)
    it = call.args[0]
    trace = call.trace
    t = type(it)
    if t is InterpretedGenerator:
        return call.interp.resume_generator(call.frame, it, None, call.then)
    if t in c_access.ITERATORS and it not in trace.sources and c_access.may_walk(trace, it):
        return call.finish(next_item(trace, it))
    method = special_method(trace, t, "__next__")
    if is_a(method, types.FunctionType):
        return call.instead(method, [it])
    if method is None or method is MISSING or not trace.active:
        return call.finish(call.interp.native(next, (it,), None))
    raise GraphBreak(next, (it,), None, "FL416", f"the next item of a {t.__name__}")


def _next_carried(call: Call) -> Frame | None:
    """Handles next() of an iterator that was alive at a graph break: the item is a guarded read of that iterator."""
    it, trace = call.args[0], call.trace
    if not trace.active or it.ended:
        return call.finish(next(it))
    src, ahead = trace.sources[it.iterator], it.taken
    name = STANDING[type(it)].__name__
    over = containers_of(it.iterator)
    # The graph's writes into tensors are not in the memory of an array yet.
    unwritten = trace.recorder.writes.storages and any([type(x) is np.ndarray for x in over])
    if unwritten or any([x in trace.mutations.written for x in over]):
        raise GraphBreak(next, (it,), None, "FL416", f"the next item of a {name} over what has been written to")
    try:
        # If the segment has read the container as a whole, symbols may have replaced its numbers.
        value = trace.mutations.original(next(it))
    except StopIteration:
        trace.guards.check(src, "predicate", (EndsAfter(ahead), f"gives {ahead or 'no'} more item{'' if ahead == 1 else 's'}"), ("ends", ahead))
        raise
    except RuntimeError:
        # The container has changed its size: the eager call raises the error.
        raise GraphBreak(next, (it,), None, "FL416", f"the next item of a {name} over what has changed its size") from None
    value = read_item(call.interp, value, trace.guards.access(src, "member", FollowingItem(ahead), value), STANDING[type(it)] in TUPLES_OF)
    return call.finish(value)


def read_item(interp: Interp, v: Any, src: Source, fresh: bool = False) -> Any:
    """Registers and returns an item. A text often differs between iterations: its guard is made where the code reads it.

    ``fresh``: a tuple ``v`` was made by the iterator, and the same holds for the texts in it.
    """
    trace = interp.trace
    if breaks_here(interp.options.breaks) == "any":
        if type(v) is str:
            return given(interp, v, src)
        if fresh and type(v) is tuple and not src.checked and any([type(x) is str for x in v]):
            trace.check_type(src, tuple)
            trace.guards.check(src, "len", len(v))
            trace.adopt(v, src)
            found = tuple([read_item(interp, x, trace.guards.access(src, "index", i, x)) for i, x in enumerate(v)])
            trace.adopt(found, src)
            return found
    return trace.read(v, src)


def _generator_method(verb: str) -> Handler:
    def handler(call: Call) -> Frame | None:
        args, gen = call.args, call.args[0]
        real = gen.given if type(gen) is InterpretedGenerator else gen
        if type(real) is types.GeneratorType:
            # Eager code holds it as a real generator.
            return call.instead(getattr(real, call.fn.__name__), args[1:], call.kwargs)
        if verb == "next":
            return call.interp.resume_generator(call.frame, gen, None, call.then)
        if verb == "send":
            return call.interp.resume_generator(call.frame, gen, args[1], call.then)
        if verb == "iter":
            return call.finish(gen)
        if verb == "throw":
            if len(args) > 2 and "parts" in CURRENT.warns_of and call.trace.active:
                raise GraphBreak(types.GeneratorType.throw, tuple(args), None, "FL437", "throw() with several arguments, about which Python warns")
            typ, val = args[1], args[2] if len(args) > 2 else None
            exc = typ if is_a(typ, BaseException) else (val if is_a(val, BaseException) else typ(val) if val is not None else typ())
            return call.interp.resume_generator(call.frame, gen, None, call.then, None, exc)
        if gen.state in ("new", "closed"):
            gen.state, gen.frame = "closed", None
            return call.finish(None)
        return call.instead(close_generator, [gen, call.trace.fresh(GeneratorExit()), CLOSE_RETURNS])

    return handler


def _frame_of(call: Call) -> Frame | None:
    gen = call.args[0]
    if gen.state == "closed" and gen.given is None:
        return call.finish(None)
    raise GraphBreak(getattr, (gen, "gi_frame"), None, "FL410", "a generator's frame")


def _unraisable(call: Call) -> Frame | None:
    if call.trace.active:
        raise call.graph_break("FL410", "a generator raises when its last reference goes")
    return call.run_in_c()


def close_generator(gen: Any, exc: Any, returns: bool) -> Any:
    """Closes a suspended generator as ``gen.close()`` does; the interpreter runs this code."""
    try:
        gen.throw(exc)
    except GeneratorExit:
        return None
    except StopIteration as stop:
        return stop.value if returns else None
    raise RuntimeError("generator ignored GeneratorExit")


def _zip(call: Call) -> Frame | None:
    """Handles zip() and enumerate(). For user-defined iterables it calls ``__iter__`` first and makes the C iterator over the results."""
    trace = call.trace
    first = call.args[:1] if call.fn is enumerate else call.args
    if trace.active and not all(c_access.may_walk(trace, a) for a in first):
        return call.instead(protocols.iterators, [first], None, _over_iterators, call.fn, call.args, call.kwargs)
    return c_calls.call_c(call)


def _over_iterators(interp: Interp, f: Frame, iterators: tuple, then: Delivery | None, fn: Any, args: list, kwargs: dict | None) -> Frame | None:
    full = [*iterators, *args[1:]] if fn is enumerate else iterators
    return c_calls.call_c(Call(interp, f, fn, list(full), kwargs, then))


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        builtins.iter: _iter,
        builtins.next: _next,
        zip: _zip,
        enumerate: _zip,
        range: _range,
        CarriedIterator.__next__: _next_carried,
        protocols.unraisable: _unraisable,
        InterpretedGenerator.__dict__["gi_frame"].fget: _frame_of,
        InterpretedGenerator.send: _generator_method("send"),
        InterpretedGenerator.throw: _generator_method("throw"),
        InterpretedGenerator.close: _generator_method("close"),
        InterpretedGenerator.__next__: _generator_method("next"),
        InterpretedGenerator.__iter__: _generator_method("iter"),
    }
)
