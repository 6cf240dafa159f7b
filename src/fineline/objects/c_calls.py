"""Calls into C that the table of C callables allows, after the values that they will read have been guarded."""

from __future__ import annotations

import functools
import operator
import types
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from torch import Tensor

from fineline.bytecode.version import CURRENT
from fineline.cpython.c_callables import CallableSpec
from fineline.cpython.iterator_states import STATES_OF_ITERTOOLS
from fineline.cpython.polyfill_itertools import STAND_INS
from fineline.exception_slots import ARGS
from fineline.frames.frame import Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.objects.c_access import (
    ADVANCED_BY_C,
    ITERATORS,
    has_python_items,
    keys_of,
    may_compare,
    may_hash,
    may_hash_keys,
    may_index,
    may_print,
    may_walk,
    overridden,
    prints_address,
)
from fineline.objects.c_argument_errors import INSTANCE_METHODS, is_of_class, of_kind, refused, takes
from fineline.objects.callable_table import spec_of
from fineline.objects.deferred_texts import formatted
from fineline.objects.iterator_stand_ins import ITERATOR_STAND_INS
from fineline.objects.list_iterators import unread_lists
from fineline.objects.numpy_numbers import converts, symbols_for
from fineline.objects.printing import asks, written_out
from fineline.objects.type_info import type_info
from fineline.policy.break_settings import breaks_here
from fineline.policy.selector import describe as public_name
from fineline.symbolic.arithmetic import SIZES, SYMBOLIC, has_symbol, holds, is_large, numbers, only_ints, only_numbers, settle_all
from fineline.symbolic.floats import WHOLE
from fineline.torch_facts.wrapper_subclasses import stands_for_lengths
from fineline.tracing.identity_guards import LIST_READERS, VIEWS, guard_distinct, guard_distinct_from, guard_identity, has_hidden_state
from fineline.tracing.interp import Call, Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES
from fineline.tracing.segment_trace import SegmentTrace
from fineline.tracing.set_identity_guards import rewritten

TEXTS = frozenset({str, bytes, bytearray})
MANY = (list, dict, set, deque, *VIEWS)
# Effects of functions that run during capture. Others run at a graph break with numbers from the program, and need no guards.
RUNNING = frozenset({"pure", "mutator", "advance", "callback"})
DEQUE_END = deque.__dict__["maxlen"]
# Functions in C that read the names of the Python function that calls them, or that calls the C code which calls them.
_OF_CALLERS = IdentitySet((eval, exec, locals, globals, vars, dir))


def read_as_index(interp: Interp, a: Any, fn: Any, args: Any, kwargs: dict | None = None) -> None:
    """Applies the rules about ``Tensor.__index__`` to an argument that C converts with ``__index__``."""
    for part in (a.start, a.stop, a.step) if type(a) is slice else (a,):
        if is_a(part, Tensor):
            interp.tensors.sign(interp, operator.index, (part,), (fn, tuple(args), kwargs))


def _settle_numbers(trace: SegmentTrace, values: Any) -> None:
    """Guards the plain numbers among the arguments of a function in its symbolic form, because it reads them."""
    for v in values:
        if type(v) in SIZES:
            trace.expand(v)
            _settle_numbers(trace, v)
        else:
            trace.deferred.settle(v)


def polyfill_needed(args: Any, kwargs: dict | None = None) -> bool:
    """Returns whether an argument is an iterator or a callback that the interpreter must run itself."""
    return any([is_a(a, InterpretedGenerator) or a in _OF_CALLERS for a in (*args, *(kwargs or {}).values())])


def call_c(call: Call, key: Any = None) -> Frame | None:
    """Calls a C function by its row in the table; ``key``: the function whose row it is, if not the called one."""
    interp, trace, key = call.interp, call.trace, call.fn if key is None else key
    args, kwargs = call.args, call.kwargs
    if not trace.active and not polyfill_needed(args, kwargs):
        return call.run_natively()
    if key is str.format and args and (text := formatted(interp, call.frame, args, kwargs)) is not None:
        return call.finish(text)
    if trace.deferred.unsymbolic and converts(key, args):
        args = call.args = symbols_for(trace, args)
        if key is np.generic.item and type(args[0]) in SYMBOLIC:
            return call.finish(args[0])
    spec, method = spec_of(key), is_a(key, INSTANCE_METHODS)
    if interp.varying.unsteady and spec.effect != "unknown" and (spec.reads != "none" or method):
        _ask_contents(call, key, spec)
    if (interp.backing.may_be_symbolic or trace.deferred.unsymbolic) and (spec.effect in RUNNING or spec.symbolic is not None):
        if interp.backing.may_be_symbolic and any([holds(a) for a in call.values()]):
            if not spec.moves_only and any(map(stands_for_lengths, numbers(call.values()))):
                raise call.graph_break("FL508", f"{describe(call.fn)} of the size of a ragged dimension")
            if (form := _form(key, spec, args, kwargs)) is not None:
                if not has_symbol(key, args):
                    _ask(call, key, spec)
                _settle_numbers(trace, args)
                return call.finish(of_few_parts(interp, form(*args, **(kwargs or {})), call.fn, tuple(args), kwargs))
            if spec.one_by_one and (not kwargs or spec.sorts) and _is_ready(spec, call.frame):
                return _run_polyfill(call, spec, list(args), False)
            _settle(call, key, spec)
            args, kwargs = call.args, call.kwargs
        elif trace.deferred.unsymbolic and not spec.moves_only:
            _ask(call, key, spec)
    if method and not is_of_class(key, args):
        return refused(call)
    if spec.effect not in RUNNING:
        if spec.effect == "unknown":
            raise call.graph_break("FL410", f"{describe(call.fn)} is C code that fineline knows nothing of")
        raise call.graph_break("FL411", f"{describe(call.fn)} can't be captured")
    values = [*args, *kwargs.values()] if kwargs else args
    hides_state = not STATES_OF_ITERTOOLS and spec.polyfill in STAND_INS
    if spec.effect == "callback" or hides_state or not _may_run(trace, key, spec, values, len(args)):
        return _call_in_python(call, key, spec)
    replaced = len(trace.mutations.replaced)
    prepare(call, key, spec, values)
    if len(trace.mutations.replaced) > replaced:
        # The containers that C would read now contain symbols.
        return call_c(call, key)
    if spec.one_by_one and interp.backing.may_be_symbolic and any([type(a) in VIEWS and holds(tuple(a)) for a in args]) and _is_ready(spec, call.frame):
        # C would add symbolic floats by PyTorch's operators, which do not keep their order.
        return _run_polyfill(call, spec, list(args), False)
    if spec.effect == "mutator":
        _note_write(call, spec)
    if interp.backing.may_be_symbolic and (spec.writes_out or (method and key.__objclass__ in TEXTS)):
        args, kwargs = [written_out(a) for a in args], {k: written_out(a) for k, a in kwargs.items()} if kwargs else kwargs
    try:
        result = call.fn(*args, **kwargs) if kwargs else call.fn(*args)
    except Exception as e:
        if spec.effect == "pure" and any([" at 0x" in text for text in ARGS.__get__(e) if type(text) is str]) and any(map(prints_address, args)):
            raise call.graph_break("FL417", f"{describe(call.fn)} raises an error with an address in its text") from None
        raise
    t = type(result)
    if t is np.ndarray:
        raise call.graph_break("FL410", f"{describe(call.fn)} makes an array")
    if t not in VALUES and t not in SINGLETONS and result not in trace.sources:
        trace.made.add(result)
        if t is list and result and type(result[0]) is list:
            trace.made.update(result)
        elif t is functools.partial:
            trace.made.add(result.keywords)
    return call.finish(result)


def _form(key: Any, spec: CallableSpec, args: list, kwargs: dict | None) -> Callable | None:
    """Returns the form of a function for symbolic numbers, if it takes these arguments."""
    # round() to a number of digits has no form for symbols.
    if spec.symbolic is None or (key in WHOLE and len(args) != 1) or not only_numbers(args):
        return None
    if key is sum and CURRENT.compensates_sums and not only_ints(args):
        # The polyfill compares the floats.
        return None
    return spec.symbolic if not kwargs or (kwargs.keys() == {"start"} and only_numbers(kwargs.values())) else None


def _settle(call: Call, key: Any, spec: CallableSpec) -> None:
    """Replaces symbols by numbers in the arguments that C would read."""
    if not spec.moves_only:
        _ask(call, key, spec)
        call.args = [settle_all(a) for a in call.args]
        call.kwargs = {k: settle_all(a) for k, a in call.kwargs.items()} if call.kwargs else call.kwargs
    elif breaks_here(call.interp.options.breaks) != "any":
        # C reads the value of an index, and no other way to it is left here.
        call.args = [settle_all(a) if n in spec.index else a for n, a in enumerate(call.args)]


def _call_in_python(call: Call, key: Any, spec: CallableSpec) -> Frame | None:
    """Replaces a call that C must not make: by the number in a tensor, the user's special method, or the polyfill, in this order."""
    interp, trace, args, kwargs = call.interp, call.trace, call.args, call.kwargs
    for at in spec.index:
        if at < len(args):
            read_as_index(interp, args[at], call.fn, args, kwargs)
    if spec.number and len(args) == 1 and is_a(args[0], Tensor):
        interp.tensors.sign(interp, key, tuple(args))
        if interp.tensors.known.has(args[0], trace.recorder.writes.storages):
            return call.finish(call.fn(interp.tensors.known.numbers(args[0])))
        if interp.tensors.reads(interp, args[0]):
            return interp.tensors.number(interp, call.frame, key, args[0], call.then)
        raise call.graph_break("FL502", f"{describe(call.fn)} reads a tensor's values")
    if spec.protocol and args and is_users_class(type(args[0])) and not is_a(args[0], Tensor):
        method = type_info(trace, type(args[0])).look(trace, spec.methods[0])[1]
        if is_a(method, types.FunctionType):
            return call.instead(method, list(args), kwargs, *((of_kind, key, args[0]) if spec.checks_result else ()))
    if _is_ready(spec, call.frame):
        # The polyfill of a class method takes the class.
        fn = call.fn
        bound = type(fn) is types.BuiltinFunctionType and is_a(fn.__self__, type)
        return _run_polyfill(call, spec, [fn.__self__, *args] if bound else list(args))
    raise call.graph_break("FL412", f"{describe(call.fn)} would run Python code, or read a tensor, from C")


def _is_ready(spec: CallableSpec, f: Frame) -> bool:
    """Returns whether there is a polyfill that is not itself the caller."""
    polyfill = spec.polyfill
    return polyfill is not None and (is_a(polyfill, type) or polyfill.__code__ is not f.info.code)


def _run_polyfill(call: Call, spec: CallableSpec, args: list, noted: bool = True) -> Frame | None:
    """Runs the polyfill. ``noted``: an iterator that it returns becomes one of the interpreter's stand-ins."""
    if not takes(spec.polyfill, len(args), call.kwargs):
        return refused(call)
    deliver = stand_in if is_a(spec.polyfill, type) else _stand_ins_of if spec.makes_iterators else None
    return call.instead(spec.polyfill, args, call.kwargs, deliver if noted else None)


def of_few_parts(interp: Interp, number: Any, fn: Any, args: tuple, kwargs: dict | None = None) -> Any:
    """Returns the result of ``fn``, a number; breaks the graph if its expression has grown too large, so that it becomes a new symbol."""
    if interp.trace.active and is_large(number) and breaks_here(interp.options.breaks) == "any":
        raise GraphBreak(fn, args, kwargs, "FL452", f"{describe(fn)} gives a number that many operators have made")
    return number


def _ask(call: Call, key: Any, spec: CallableSpec) -> None:
    """Breaks the graph at a call that reads a number which has varied before."""
    if (not is_a(key, type) or spec.makes_value) and call.interp.varying.numbers_vary(call.interp, call.frame, call.values()):
        raise call.graph_break("FL448", f"{describe(call.fn)} asks for a number that varies")


def _ask_contents(call: Call, key: Any, spec: CallableSpec) -> None:
    """Breaks the graph at a call that reads a whole container whose contents have varied before."""
    # The spared functions read a list item by item, or not at all.
    interp, f = call.interp, call.frame
    spared = call.args[:1] if spec.appends else [a for a in call.args if type(a) is list] if spec.list_reader else ()
    for a in call.values():
        if is_a(a, MANY) and not any([a is one for one in spared]) and interp.varying.contents_vary(interp, f, a):
            reason = f"{describe(call.fn)} reads a {type(a).__name__} that holds more or less each time"
            looped = call.then is None and f.info.instructions[f.ip].name == "GET_ITER"
            if key in ITERATORS and not looped:
                # Otherwise the reader of the iterator would break the graph at each item.
                continue
            if looped:
                # The contents of the result would need guards too.
                raise GraphBreak(_iterated, (call.fn, *call.args), call.kwargs, "FL448", reason)
            raise call.graph_break("FL448", reason)
        lists = unread_lists(call.trace, a) if type(a) in LIST_READERS and not spec.list_reader else ()
        if any([interp.varying.contents_vary(interp, f, each.held) for each in lists]):
            raise call.graph_break("FL448", f"{describe(call.fn)} reads what is left of a list that holds more or less each time")


def _iterated(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
    return iter(fn(*args, **kwargs))


def stand_in(interp: Interp, f: Frame, made: Any, then: Delivery | None) -> Frame | None:
    interp.stand_ins.add((made,))
    return interp.finish(f, made, then)


def _stand_ins_of(interp: Interp, f: Frame, made: Any, then: Delivery | None) -> Frame | None:
    """Delivers the result of a polyfill that is no class: an iterator, a tuple of them, or what the user's code has returned, as ``__reversed__`` may."""
    known = IdentitySet(interp.stand_ins.alive())
    interp.stand_ins.add([v for v in (made if is_a(made, tuple) else (made,)) if type(v) in ITERATOR_STAND_INS and v not in known])
    return interp.finish(f, made, then)


def _may_run(trace: SegmentTrace, key: Any, spec: CallableSpec, values: Any, positional: int) -> bool:
    reads = spec.reads
    if reads != "deep" and not all([may_index(values[i]) for i in spec.index if i < len(values)]):
        return False
    if spec.prints and (reads == "deep" or len(values) == 1) and (asks(key, values) or not all([may_print(trace, a) for a in values])):
        return False
    if reads == "none":
        return True
    if spec.nested and not all([is_a(a, dict) for a in values[key is defaultdict : positional]]):
        return False
    if spec.methods:
        for a in values:
            for one in (a, *a) if type(a) in (list, tuple) else (a,):
                t = type(one)
                if is_users_class(t) and not is_a(one, Tensor) and overridden(trace, t, spec.methods):
                    return False
    method = is_a(key, INSTANCE_METHODS)
    if reads == "deep":
        # A function that is called with the items is neither compared nor printed.
        called = spec.keyed and any([callable(a) and not _reads_arguments(a) for a in values[positional:]])
        return not called and all([may_compare(trace, a) and not has_python_items(trace, a) for a in values])
    if reads == "shallow":
        if spec.sets_slice and len(values) > 2 and type(values[1]) is slice:
            return may_walk(trace, values[2])
        if method and not spec.walks:
            return True
        return all([may_walk(trace, a) for a in values])
    if method and not spec.walks:
        return all([may_hash(trace, a, values[0] if is_a(values[0], (dict, set)) else None) for a in values[1:2]])
    # The names of keyword arguments are the keys.
    # `guard_distinct` covers the comparison of sets with each other, and of keys in a container that is made here.
    outside = (method or spec.effect == "mutator") and values[0] in trace.sources
    among: list | None = [] if spec.set_algebra or not outside else None
    return all([may_walk(trace, a) and (n >= positional or may_hash_keys(trace, a, among, spec.nested)) for n, a in enumerate(values)])


def _reads_arguments(fn: Any) -> bool:
    """Returns whether ``fn`` is C code that reads only its arguments."""
    bound = types.ModuleType, types.NoneType
    return is_a(fn, types.MethodDescriptorType) or (is_a(fn, types.BuiltinFunctionType) and is_a(fn.__self__, bound) and fn not in _OF_CALLERS)


def prepare(call: Call, key: Any, spec: CallableSpec, values: Any) -> None:
    """Guards the contents of existing containers that the call is going to read."""
    trace, args, reads, opaque = call.trace, call.args, spec.reads, call.interp.nested.opaque
    # A library that copies a set at each call gets the elements in another order than before (einx).
    ordered = not spec.order_independent and not (opaque is not None and opaque.lenient and (spec.set_algebra or key is set.update))
    if args and type(args[0]) in ADVANCED_BY_C and args[0] in trace.sources and is_a(key, INSTANCE_METHODS) and key.__name__ != "__iter__":
        raise call.graph_break("FL416", f"{describe(call.fn)} of an iterator from outside")
    try:
        if key is functools.partial and values and type(values[0]) is functools.partial:
            # The arguments of the inner one become arguments of the new one.
            trace.load_partial(values[0])
        for a in values:
            t = type(a)
            if t in SINGLETONS or t in VALUES:
                if trace.deferred.numbers and reads != "shallow":
                    trace.deferred.settle(a)
                continue
            if reads == "none" and not is_a(key, INSTANCE_METHODS) and key is not types.MappingProxyType:
                continue
            if spec.appends and a is args[0] and _only_grows(trace, a):
                continue
            if (spec.effect != "mutator" or reads == "deep" or spec.walks) and a in trace.sources and t not in VIEWS and has_hidden_state(a):
                raise NotForGraph(f"{describe(call.fn)} reads a {t.__name__} from outside")
            one_by_one = spec.list_reader and (t in LIST_READERS or (t is list and (key is not reversed or _is_of_any_length(call.interp, a))))
            if not one_by_one:
                trace.expand(a, reads == "deep", ordered)
        if spec.compares_identity:
            guard_distinct(trace, values, spec.set_algebra)
        elif reads == "key" and (spec.walks or spec.nested or spec.merges or not is_a(key, INSTANCE_METHODS)):
            guard_distinct(trace, [k for a in args for k in keys_of(a, spec.nested)], True)
        elif reads == "key" and len(values) > 1 and type(values[0]) in (set, frozenset) and values[0] in trace.sources:
            # One made here has the guards of its lookups (`set_identity_guards`).
            guard_distinct_from(trace, values[1], values[0])
        elif spec.asks_identity and len(values) == 2:
            guard_identity(trace, *values)
    except NotForGraph as e:
        raise call.graph_break("FL413", str(e)) from None


def _is_of_any_length(interp: Interp, held: list) -> bool:
    """Returns whether the length of a list has varied: guards on items by distance from the end cost more at each call."""
    src = interp.trace.sources.get(held)
    return src is not None and interp.varying.unsteady.get(src.text()) == "length"


def _only_grows(trace: SegmentTrace, target: Any) -> bool:
    """Returns whether appending to ``target`` only adds an item: a deque with a maximal length also drops one. Guards the deque's length limit."""
    if type(target) is not deque:
        return type(target) is list
    src = trace.sources.get(target)
    if target.maxlen is None and src is not None:
        trace.load(None, trace.guards.access(src, "member", DEQUE_END, None))
    return target.maxlen is None


def _note_write(call: Call, spec: CallableSpec) -> None:
    trace, target = call.trace, call.args[0]
    if not spec.one_element:
        rewritten(trace, target)
    src = trace.sources.get(target)
    if src is not None:
        try:
            if not (spec.appends and _only_grows(trace, target)):
                trace.expand(target, ordered=False)
            trace.mutations.note(target, src)
        except (NotForGraph, TypeError) as e:
            raise call.graph_break("FL413", str(e)) from None
        trace.namespaces.forget_globals(target)
    elif target not in trace.made:
        raise call.graph_break("FL414", f"{describe(call.fn)} changes a {type(target).__name__} of unknown origin")


def describe(fn: Any) -> str:
    """Returns a callable's name for messages, without the module of Python's built-in ones."""
    return public_name(fn).removeprefix("builtins.")
