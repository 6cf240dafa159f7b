"""Instruction handlers for iteration, jumps, calls and generators."""

from __future__ import annotations

import types
import weakref
from typing import Any

from torch import Tensor

from fineline.builtins.containers import length
from fineline.builtins.iteration import TUPLES_OF, Stepped, iterate, read_item, step_eagerly
from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.exception_slots import STOP_VALUE
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Delivery, Finished, GraphBreak, Restart
from fineline.frames.opcode_families import Handler, family
from fineline.frames.stub_frames import is_own
from fineline.fx.recorder import NotForGraph
from fineline.interp.opcodes.assertion_branches import assume
from fineline.interp.opcodes.if_conversion import merge
from fineline.kinds import is_a, is_users_class
from fineline.objects import c_access, c_calls
from fineline.objects.list_iterators import next_item
from fineline.objects.type_info import MISSING, in_python, raw_lookup, special_method, type_info
from fineline.symbolic.arithmetic import FUNCTIONS, SYMBOLIC, decided, text_of
from fineline.tracing.identity_guards import PLAIN_VALUE
from fineline.tracing.interp import Interp
from fineline.tracing.plain_values import SINGLETONS, VALUES
from fineline.tracing.segment_trace import SegmentTrace


# -- iteration -------------------------------------------------------------------------------------------------------
def GET_ITER(interp: Interp, f: Frame, arg: int) -> Frame | None:
    t = type(f.stack[-1])
    if arg and t is not InterpretedGenerator and hasattr(t, "__next__"):
        if type(special_method(interp.trace, t, "__iter__")) is types.WrapperDescriptorType:
            # An iterator in C is its own iterator, wherever it comes from.
            return None
    return iterate(interp, f, f.stack.pop())


def FOR_ITER(interp: Interp, f: Frame, arg: int) -> Frame | None:
    it = f.stack[-1]
    t = type(it)
    if t is InterpretedGenerator:
        return interp.resume_generator(f, it, None, None, _EXHAUSTED)
    trace = interp.trace
    if t in c_access.ITERATORS and it not in trace.sources and c_access.may_walk(trace, it):
        try:
            f.stack.append(next_item(trace, it))
        except StopIteration:
            f.stack.pop()
            f.ip = arg
        return None
    if t is Stepped:
        # Second visit: the graph break after the first one has taken a step.
        f.stack.pop()
        if trace.active:
            _loaded(trace, it, "ended")
        if it.ended:
            f.stack.pop()
            f.ip = arg
        else:
            f.stack.append(_item_of(interp, it, type(f.stack[-1])))
        return None
    method = special_method(trace, t, "__next__")
    if is_a(method, types.FunctionType):
        return call_next(interp, f, method, [it], _EXHAUSTED)
    f.ip -= 1
    raise GraphBreak(step_eagerly, (it,), None, "FL416", f"the next item of a {t.__name__}")


def _loaded(trace: SegmentTrace, step: Any, name: str = "value") -> Any:
    src = trace.sources.get(step)
    value = getattr(step, name)
    return value if src is None else trace.load(value, trace.guards.access(src, "member", type(step).__dict__[name], value))


def _item_of(interp: Interp, step: Stepped, kind: type) -> Any:
    """Returns the item of a step at a graph break, with the guards for a loop's items. ``kind``: the type of the iterator."""
    src = interp.trace.sources.get(step) if interp.trace.active else None
    if src is None:
        return step.value
    return read_item(interp, step.value, interp.trace.guards.access(src, "member", type(step).__dict__["value"], step.value), kind in TUPLES_OF)


def _exhausted(interp: Interp, f: Frame, value: Any, then: None) -> None:
    f.stack.pop()
    f.ip = f.info.instructions[f.ip - 1].arg


_EXHAUSTED = Delivery(_exhausted)


def call_next(interp: Interp, f: Frame, method: Any, args: list, on_stop: Delivery) -> Frame | None:
    """Calls the function that returns the next item; a StopIteration from it ends the iteration, even if the call runs eagerly."""
    try:
        frame = interp.call(f, method, args)
    except StopIteration as stop:
        return ended(interp, f, on_stop, stop)
    except GraphBreak as graph_break:
        if graph_break.then is None:
            # Adds a frame around the call, which the exception leaves.
            frame = interp.push_function(f, protocols.same, [None], None)
            assert frame is not None
            frame.own_extras().on_stop, graph_break.then = on_stop, _SAME
        raise
    if frame is not None:
        frame.own_extras().on_stop = on_stop
    return frame


def _same(interp: Interp, f: Frame, value: Any, then: None) -> None:
    f.local[0] = value


_SAME = Delivery(_same)


def ended(interp: Interp, f: Frame, on_stop: Delivery, stop: StopIteration) -> Frame | None:
    """Continues in ``f`` after the end of an iterator."""
    trace, value = interp.trace, STOP_VALUE.__get__(stop)
    if trace.active and on_stop.function is _sent and (src := trace.sources.get(stop)) is not None:
        value = trace.load(value, trace.guards.access(src, "member", STOP_VALUE, value))
    return interp.finish(f, value, on_stop)


def GET_LEN(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return length(interp, f, f.stack[-1])


# -- jumps -----------------------------------------------------------------------------------------------------------
def JUMP_FORWARD(interp: Interp, f: Frame, arg: int) -> None:
    f.ip = arg


_PLAIN_BASES = tuple(PLAIN_VALUE)
# Backward jumps without a tensor operator in between (about 0.2 s of interpretation) after which a loop is left to CPython.
LONG_LOOP = 100_000


def JUMP_BACKWARD(interp: Interp, f: Frame, arg: int) -> None:
    f.ip = arg
    interp.limits.jumps += 1
    if interp.limits.jumps > LONG_LOOP and interp.trace.active:
        interp.long_loop(f)


def truth(interp: Interp, f: Frame, v: Any, then: Delivery | None = None) -> Frame | None:
    """Delivers ``bool(v)`` for a branch."""
    trace = interp.trace
    t = type(v)
    if t in SINGLETONS or t in VALUES:
        if trace.deferred.numbers:
            if t is complex and interp.varying.numbers_vary(interp, f, (v,)):
                raise GraphBreak(bool, (v,), None, "FL448", "a branch on a complex number that varies")
            trace.deferred.settle(v)
        return interp.finish(f, bool(v), then)
    if t in SYMBOLIC:
        known = decided(v)
        if known is None:
            raise GraphBreak(bool, (v,), None, "FL518", f"a branch on {text_of(v)}, which only the graph knows")
        return interp.finish(f, known, then)
    if is_a(v, Tensor):
        if trace.active:
            interp.tensors.sign(interp, bool, (v,))
        if trace.active and not interp.tensors.known.has(v, trace.recorder.writes.storages):
            number = interp.tensors.known.number(v, trace.recorder.writes.storages)
            if number is not None:
                return interp.finish(f, bool(decided(number)), then)
            raise GraphBreak(bool, (v,), None, "FL502", "a branch on a tensor's value")
        return interp.finish(f, bool(interp.tensors.known.numbers(v) if trace.active else v), then)
    if t in c_access.CONTAINERS:
        return Delivery(truth, then).of(length, interp, f, v)
    methods = [raw_lookup(t, "__bool__"), raw_lookup(t, "__len__")]
    if any([method is None or in_python(method) for method in methods]):
        return interp.call(f, protocols.truth, [v], None, then)
    if trace.active and is_users_class(t):
        from_type(trace, t)
    if is_a(v, (list, dict, tuple, set, frozenset)):
        return Delivery(truth, then).of(length, interp, f, v)
    if is_a(v, _PLAIN_BASES):
        # Guards compare the plain value of an instance of a subclass, and members of enumerations by identity.
        return interp.finish(f, bool(v), then)
    # Not hasattr: the class of an enumeration's class has methods of these names.
    if any([method is not MISSING for method in methods]):
        if (trace.active and v not in trace.made) or t not in c_calls.VIEWS:
            raise GraphBreak(bool, (v,), None, "FL412", f"the truth of a {t.__name__}")
        return interp.finish(f, bool(v), then)
    return interp.finish(f, True if t not in c_calls.VIEWS else bool(v), then)


def boolean(interp: Interp, f: Frame, v: Any, then: Delivery | None = None) -> Frame | None:
    """Delivers ``bool(v)`` as a value: a symbol, if only the graph knows it."""
    if type(v) in SYMBOLIC:
        return interp.finish(f, FUNCTIONS[bool](v), then)
    if interp.trace.active and is_a(v, Tensor) and not interp.tensors.known.has(v, interp.trace.recorder.writes.storages):
        interp.tensors.sign(interp, bool, (v,))
        if interp.tensors.reads(interp, v):
            return interp.tensors.number(interp, f, bool, v, then)
        if interp.backing.switches and v.numel() == 1:
            raise Restart("FL502", "the truth of a tensor")
    return truth(interp, f, v, then)


def from_type(trace: SegmentTrace, t: type) -> None:
    """Guards the source of an object's truth: ``__bool__`` or ``__len__`` of its class, or that there is neither."""
    info = type_info(trace, t)
    info.look(trace, "__bool__")
    info.look(trace, "__len__")


def _jump_if(wanted: bool, keep: bool) -> Handler:
    def jump(interp: Interp, f: Frame, arg: int) -> Frame | None:
        s = f.stack
        v = s[-1]
        if v is True or v is False:
            if v is wanted:
                if not keep:
                    s.pop()
                f.ip = arg
            else:
                s.pop()
            return None
        if keep:
            # The value itself stays; only its truth decides.
            jump_kept = Delivery(_jump_kept, None, wanted)
            if not is_a(v, Tensor):
                return jump_kept.of(truth, interp, f, v)
            return interp.call(f, protocols.truth_of, [v], None, jump_kept) if interp.trace.active else interp.finish(f, bool(v), jump_kept)
        s.pop()
        # Function modes see the truth of a tensor.
        if interp.trace.active and (type(v) in SYMBOLIC or (is_a(v, Tensor) and not interp.nested.modes)):
            known = assume(interp, f, v, *((arg, f.ip) if wanted else (f.ip, arg)))
            if known is not None:
                f.ip = arg if known is wanted else f.ip
                return None
            begun = merge(interp, f, v, wanted)
            if begun is not None:
                return begun
        f.ip -= 1
        return truth(interp, f, v)

    return jump


def _jump_kept(interp: Interp, f: Frame, value: Any, then: None, wanted: bool) -> None:
    if bool(value) is wanted:
        f.ip = f.info.instructions[f.ip - 1].arg
    else:
        f.stack.pop()


def _jump_if_none(wanted: bool) -> Handler:
    def jump(interp: Interp, f: Frame, arg: int) -> None:
        if (f.stack.pop() is None) is wanted:
            f.ip = arg

    return jump


# -- calls -----------------------------------------------------------------------------------------------------------
def KW_NAMES(interp: Interp, f: Frame, arg: int) -> None:
    f.kwnames = f.info.consts[arg]


def CALL(interp: Interp, f: Frame, arg: int) -> Frame | None:
    # `called`, inlined: CALL takes more of a capture's time than any other instruction.
    s = f.stack
    args = s[-arg:] if arg else []
    del s[len(s) - arg :]
    self = s.pop()
    fn = s.pop()
    if fn is NULL:
        fn = self
    else:
        args.insert(0, self)
    return interp.call(f, fn, args, _keywords(f, args) if f.kwnames else None)


def called(f: Frame, arg: int) -> tuple[Any, list, dict | None]:
    """Pops the function, the arguments and the keywords of CALL."""
    s = f.stack
    args = s[-arg:] if arg else []
    del s[len(s) - arg :]
    self = s.pop()
    fn = s.pop()
    if fn is NULL:
        fn = self
    else:
        args.insert(0, self)
    return fn, args, _keywords(f, args) if f.kwnames else None


def _keywords(f: Frame, args: list) -> dict:
    """Removes the keyword arguments from the ``args`` of a call; returns them by name."""
    names, f.kwnames = f.kwnames, ()
    kwargs = dict(zip(names, args[-len(names) :], strict=True))
    del args[-len(names) :]
    return kwargs


def spread(f: Frame, arg: int) -> tuple[Any, Any, Any]:
    """Pops the function, the arguments and the keywords of CALL_FUNCTION_EX."""
    s = f.stack
    kwargs = s.pop() if arg & 1 else None
    args = s.pop()
    fn = s.pop()
    if s and s[-1] is NULL:
        s.pop()
    return fn, args, kwargs


def CALL_FUNCTION_EX(interp: Interp, f: Frame, arg: int) -> Frame | None:
    fn, args, kwargs = spread(f, arg)
    if type(args) is not tuple:
        ways = [special_method(interp.trace, type(args), name) for name in ("__iter__", "__getitem__")]
        if all([way is MISSING for way in ways]) and not is_a(args, InterpretedGenerator):
            raise TypeError(f"{protocols.described_call(fn)} argument after * must be an iterable, not {type(args).__name__}")
        return interp.call(f, protocols.listed, [args], None, Delivery(_call_listed, None, fn, kwargs))
    return _call_listed(interp, f, args, None, fn, kwargs)


def _call_listed(interp: Interp, f: Frame, args: Any, then: None, fn: Any, kwargs: Any) -> Frame | None:
    if kwargs is not None:
        if interp.varying.unsteady and interp.varying.contents_vary(interp, f, kwargs):
            reason = "a call with keywords that have other names each time"
            raise GraphBreak(protocols.spread_call, (fn, args, kwargs), None, "FL448", reason)
        try:
            if interp.trace.active:
                interp.trace.expand(kwargs)
        except NotForGraph as e:
            raise GraphBreak(protocols.spread_call, (fn, args, kwargs), None, "FL413", str(e)) from None
        kwargs = dict(kwargs)
    return interp.call(f, fn, list(args), kwargs)


def RETURN_VALUE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    interp.limits.depth -= 1
    if f.extras.generator is not None:
        on_stop = f.extras.on_stop
        back = interp.leave_generator(f, "closed")
        if back is None:
            raise Finished(value)
        if on_stop is not None:
            return interp.finish(back, value, on_stop) or back
        raise StopIteration() if value is None else StopIteration(value)
    back = f.back
    if back is None:
        raise Finished(value)
    if CURRENT.drops_the_first_first:
        # A list drops its items from the end.
        f.local.reverse()
    interp.frame = back
    if f.then is None:
        back.stack.append(value)
        return back
    if type(value) is list and interp.trace.active and value in interp.trace.sources and is_own(f.info.code):
        # After a graph break, the list is a live value from before it, and the interpreter is about to read it.
        interp.trace.expand(value)
    return interp.finish(back, value, f.then) or back


def RETURN_GENERATOR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    caller = f.back
    called_at = (caller.info.code, caller.ip - 1) if caller is not None and not is_own(caller.info.code) else None
    gen = InterpretedGenerator(f, interp.drive, called_at)
    interp.trace.made.add(gen)
    interp.stand_ins.refs.append(weakref.ref(gen))
    interp.limits.depth -= 1
    back, f.back = f.back, None
    if back is None:
        raise Finished(gen)
    interp.frame = back
    return interp.finish(back, gen, f.then) or back


def YIELD_VALUE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    interp.limits.depth -= 1
    back = interp.leave_generator(f, "suspended")
    if back is None:
        raise Finished(value)
    if f.then is None:
        back.stack.append(value)
        return back
    return interp.finish(back, value, f.then) or back


def SEND(interp: Interp, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    receiver = f.stack[-1]
    if type(receiver) is InterpretedGenerator:
        return interp.resume_generator(f, receiver, value, None, SENT)
    if value is None:
        if type(receiver) in c_access.ITERATORS and receiver not in interp.trace.sources:
            try:
                f.stack.append(next_item(interp.trace, receiver))
            except StopIteration as stop:
                _sent(interp, f, STOP_VALUE.__get__(stop))
            return None
        method = special_method(interp.trace, type(receiver), "__next__")
        args = [receiver]
    else:
        method = special_method(interp.trace, type(receiver), "send")
        args = [receiver, value]
    if is_a(method, types.FunctionType):
        return call_next(interp, f, method, args, SENT)
    if interp.trace.active:
        raise GraphBreak(step_eagerly, tuple(args), None, "FL416", f"yield from a {type(receiver).__name__}").to(_STEPPED)
    _stepped(interp, f, step_eagerly(*args))
    return None


def CLEANUP_THROW(interp: Interp, f: Frame, arg: int) -> Frame | None:
    """Ends ``yield from``, if the exception that was thrown into the generator is a StopIteration."""
    exc = f.stack.pop()
    if not is_a(exc, StopIteration):
        return interp.throw(exc, again=True)
    del f.stack[-2:]
    f.stack.append(STOP_VALUE.__get__(exc))
    return None


def _stepped(interp: Interp, f: Frame, step: Stepped, then: None = None) -> None:
    trace = interp.trace
    if trace.active:
        _loaded(trace, step, "ended")
    value = _loaded(trace, step) if trace.active else step.value
    if step.ended:
        _sent(interp, f, value)
    else:
        f.stack.append(value)


def _sent(interp: Interp, f: Frame, value: Any, then: None = None) -> None:
    f.stack[-1] = value
    f.ip = f.info.instructions[f.ip - 1].arg


_STEPPED, SENT = Delivery(_stepped), Delivery(_sent)


HANDLERS = family(
    globals(),
    GET_YIELD_FROM_ITER=GET_ITER,
    JUMP_BACKWARD_NO_INTERRUPT=JUMP_FORWARD,
    JUMP_IF_TRUE_OR_POP=_jump_if(True, True),
    JUMP_IF_FALSE_OR_POP=_jump_if(False, True),
    **{f"POP_JUMP_{way}_IF_TRUE": _jump_if(True, False) for way in ("FORWARD", "BACKWARD")},
    **{f"POP_JUMP_{way}_IF_FALSE": _jump_if(False, False) for way in ("FORWARD", "BACKWARD")},
    **{f"POP_JUMP_{way}_IF_NONE": _jump_if_none(True) for way in ("FORWARD", "BACKWARD")},
    **{f"POP_JUMP_{way}_IF_NOT_NONE": _jump_if_none(False) for way in ("FORWARD", "BACKWARD")},
)
