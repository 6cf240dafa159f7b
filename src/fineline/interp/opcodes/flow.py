"""Instruction handlers for iteration, jumps, calls and generators."""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor

from fineline.builtins.containers import length
from fineline.builtins.iteration import TUPLES_OF, Stepped, iterate, read_item, step_eagerly
from fineline.cpython import protocols
from fineline.exception_slots import STOP_VALUE
from fineline.frames.frame import NULL, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import Finished, GraphBreak, Restart
from fineline.frames.opcode_families import Handler, family
from fineline.frames.stub_frames import is_own
from fineline.fx.recorder import NotForGraph
from fineline.interp.opcodes.assertion_branches import assume
from fineline.interp.opcodes.if_conversion import merge
from fineline.kinds import is_a
from fineline.objects import c_calls
from fineline.objects.attribute_reads import MISSING, in_python, raw_lookup, special_method, type_info
from fineline.objects.list_iterators import next_item
from fineline.symbolic.arithmetic import FUNCTIONS, SYMBOLIC, decided, text_of
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import HEAP_TYPE, SINGLETONS, VALUES, SegmentTrace


# -- iteration -------------------------------------------------------------------------------------------------------
def GET_ITER(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return iterate(interp, f, f.stack.pop())


def FOR_ITER(interp: Interp, f: Frame, arg: int) -> Frame | None:
    it = f.stack[-1]
    t = type(it)
    if t is InterpretedGenerator:
        return interp.resume_generator(f, it, None, None, arg, _exhausted)
    trace = interp.trace
    if t in c_calls.ITERATORS and id(it) not in trace.sources and c_calls.plain(trace, it):
        try:
            f.stack.append(next_item(trace, it))
        except StopIteration:
            f.stack.pop()
            f.ip = arg
        return None
    if t is Stepped:
        # Second visit: the graph break behind the first one has taken a step.
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
        return call_next(interp, f, method, [it], _exhausted, arg)
    f.ip -= 1
    raise GraphBreak(step_eagerly, (it,), None, "FL416", f"the next item of a {t.__name__}")


def _loaded(trace: SegmentTrace, step: Any, name: str = "value") -> Any:
    src = trace.sources.get(id(step))
    value = getattr(step, name)
    return value if src is None else trace.load(value, trace.guards.access(src, "member", type(step).__dict__[name], value))


def _item_of(interp: Interp, step: Stepped, kind: type) -> Any:
    """Returns the item that an iterator of that type gave at a graph break, with the guards that a loop's items have."""
    src = interp.trace.sources.get(id(step)) if interp.trace.active else None
    if src is None:
        return step.value
    return read_item(interp, step.value, interp.trace.guards.access(src, "member", type(step).__dict__["value"], step.value), kind in TUPLES_OF)


def _exhausted(interp: Interp, f: Frame, value: Any, arg: int) -> None:
    f.stack.pop()
    f.ip = arg


def call_next(interp: Interp, f: Frame, method: Any, args: list, on_stop: Callable, arg: int) -> Frame | None:
    """Calls what gives an item; a StopIteration that leaves the call is the end, also where it runs eagerly."""
    try:
        frame = interp.call(f, method, args, None, None, arg)
    except StopIteration as stop:
        return ended(interp, f, on_stop, stop, arg)
    except GraphBreak as graph_break:
        if graph_break.then is None:
            # A frame around the call, that the exception leaves.
            frame = interp.push_function(f, protocols.same, [None], None)
            assert frame is not None
            frame.on_stop, frame.data = on_stop, arg
            graph_break.to(_same, None)
        raise
    if frame is not None:
        frame.on_stop = on_stop
    return frame


def _same(interp: Interp, f: Frame, value: Any, data: Any) -> None:
    f.local[0] = value


def ended(interp: Interp, f: Frame, on_stop: Callable, stop: StopIteration, data: Any) -> Frame | None:
    """Goes on in ``f`` behind the end of an iterator."""
    trace, value = interp.trace, STOP_VALUE.__get__(stop)
    if trace.active and on_stop is sent and (src := trace.sources.get(id(stop))) is not None:
        value = trace.load(value, trace.guards.access(src, "member", STOP_VALUE, value))
    frame: Frame | None = on_stop(interp, f, value, data)
    return frame


def GET_LEN(interp: Interp, f: Frame, arg: int) -> Frame | None:
    return length(interp, f, f.stack[-1])


# -- jumps -----------------------------------------------------------------------------------------------------------
def JUMP_FORWARD(interp: Interp, f: Frame, arg: int) -> None:
    f.ip = arg


# Backward jumps without a tensor operator in between (about 0.2 s of interpretation) after which a loop is left to CPython.
LONG_LOOP = 100_000


def JUMP_BACKWARD(interp: Interp, f: Frame, arg: int) -> None:
    f.ip = arg
    interp.jumps += 1
    if interp.jumps > LONG_LOOP and interp.trace.active:
        interp.long_loop(f)


def truth(interp: Interp, f: Frame, v: Any, then: Any = None, data: Any = None) -> Frame | None:
    """Delivers ``bool(v)`` for a branch."""
    trace = interp.trace
    t = type(v)
    if t in SINGLETONS or t in VALUES:
        if trace.lazy:
            trace.settle(v)
        return interp.finish(f, bool(v), then, data)
    if t in SYMBOLIC:
        known = decided(v)
        if known is None:
            raise GraphBreak(bool, (v,), None, "FL518", f"a branch on {text_of(v)}, which only the graph knows").to(then, data)
        return interp.finish(f, known, then, data)
    if is_a(v, Tensor):
        if trace.active:
            try:
                interp.tensors.sign(interp, bool, (v,))
            except GraphBreak as b:
                raise b.to(then, data) from None
        if trace.active and not interp.known.has(v, trace.recorder.mutated):
            number = interp.known.number(v, trace.recorder.mutated)
            if number is not None:
                return interp.finish(f, bool(decided(number)), then, data)
            raise GraphBreak(bool, (v,), None, "FL502", "a branch on a tensor's value").to(then, data)
        return interp.finish(f, bool(interp.known.numbers(v) if trace.active else v), then, data)
    if t in c_calls.CONTAINERS:
        return length(interp, f, v, _length_truth, (then, data))
    if any([method is None or in_python(method) for method in (raw_lookup(t, "__bool__"), raw_lookup(t, "__len__"))]):
        return interp.call(f, protocols.truth, [v], None, then, data)
    if trace.active and t.__flags__ & HEAP_TYPE:
        from_type(trace, t)
    if is_a(v, (list, dict, tuple, set, frozenset)):
        return length(interp, f, v, _length_truth, (then, data))
    if hasattr(t, "__bool__") or (hasattr(t, "__len__") and not is_a(v, type)):
        if (trace.active and id(v) not in trace.made) or t not in c_calls.VIEWS:
            raise GraphBreak(bool, (v,), None, "FL412", f"the truth of a {t.__name__}").to(then, data)
        return interp.finish(f, bool(v), then, data)
    return interp.finish(f, True if t not in c_calls.VIEWS else bool(v), then, data)


def boolean(interp: Interp, f: Frame, v: Any, then: Any = None, data: Any = None) -> Frame | None:
    """Delivers ``bool(v)`` as a value: a symbol, if only the graph knows it."""
    if type(v) in SYMBOLIC:
        return interp.finish(f, FUNCTIONS[bool](v), then, data)
    if interp.trace.active and is_a(v, Tensor) and not interp.known.has(v, interp.trace.recorder.mutated):
        try:
            interp.tensors.sign(interp, bool, (v,))
        except GraphBreak as b:
            raise b.to(then, data) from None
        if interp.tensors.reads(interp, v):
            return interp.tensors.number(interp, f, bool, v, then, data)
        if interp.switches and v.numel() == 1:
            raise Restart("FL502", "the truth of a tensor")
    return truth(interp, f, v, then, data)


def from_type(trace: SegmentTrace, t: type) -> None:
    """Guards the source of an object's truth: ``__bool__`` or ``__len__`` of its class, or that there is neither."""
    info = type_info(trace, t)
    info.look(trace, "__bool__")
    info.look(trace, "__len__")


def _length_truth(interp: Interp, f: Frame, n: Any, state: tuple) -> Frame | None:
    return truth(interp, f, n, *state)


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
            return truth(interp, f, v, _jump_kept, (wanted, arg)) if not is_a(v, Tensor) else _tensor_truth(interp, f, v, wanted, arg)
        s.pop()
        if interp.trace.active and (is_a(v, Tensor) or type(v) in SYMBOLIC):
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


def _tensor_truth(interp: Interp, f: Frame, v: Tensor, wanted: bool, arg: int) -> Frame | None:
    if not interp.trace.active:
        return _jump_kept(interp, f, bool(v), (wanted, arg))
    return interp.call(f, protocols.truth_of, [v], None, _jump_kept, (wanted, arg))


def _jump_kept(interp: Interp, f: Frame, value: Any, state: tuple) -> Frame | None:
    wanted, arg = state
    if bool(value) is wanted:
        f.ip = arg
    else:
        f.stack.pop()
    return None


def _jump_if_none(wanted: bool) -> Handler:
    def jump(interp: Interp, f: Frame, arg: int) -> None:
        if (f.stack.pop() is None) is wanted:
            f.ip = arg

    return jump


# -- calls -----------------------------------------------------------------------------------------------------------
def KW_NAMES(interp: Interp, f: Frame, arg: int) -> None:
    f.kwnames = f.info.code.co_consts[arg]


def CALL(interp: Interp, f: Frame, arg: int) -> Frame | None:
    # `called`, written out: of all instructions it takes most of a capture's time.
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
    """Takes what CALL calls, and the arguments, off the stack."""
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
    """Takes those that have names away from the ``args`` of a call."""
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
        if all([way is None or way is MISSING for way in ways]) and not is_a(args, InterpretedGenerator):
            raise TypeError(f"{protocols.described_call(fn)} argument after * must be an iterable, not {type(args).__name__}")
        return interp.call(f, protocols.listed, [args], None, _call_listed, (fn, kwargs))
    return _call_listed(interp, f, args, (fn, kwargs))


def _call_listed(interp: Interp, f: Frame, args: Any, state: tuple) -> Frame | None:
    fn, kwargs = state
    if kwargs is not None:
        if interp.unsteady and interp.unlike(f, kwargs):
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
    interp.depth -= 1
    if f.generator is not None:
        on_stop, data = f.on_stop, f.data
        back = interp.leave_generator(f, "closed")
        if back is None:
            raise Finished(value)
        if on_stop is not None:
            return on_stop(interp, back, value, data) or back
        raise StopIteration(value)
    back = f.back
    if back is None:
        raise Finished(value)
    # A list lets go of its items from the end, a frame of its variables from the first.
    f.local.reverse()
    interp.frame = back
    if f.then is None:
        back.stack.append(value)
        return back
    if type(value) is list and interp.trace.active and id(value) in interp.trace.sources and is_own(f.info.code):
        # After a graph break it is a live value of before, and the interpreter is about to read it.
        interp.trace.expand(value)
    return f.then(interp, back, value, f.data) or back


def RETURN_GENERATOR(interp: Interp, f: Frame, arg: int) -> Frame | None:
    caller = f.back
    called_at = (caller.info.code, caller.ip - 1) if caller is not None and not is_own(caller.info.code) else None
    gen = InterpretedGenerator(f, interp.drive, called_at)
    interp.trace.made.add(id(gen))
    interp.stand_ins.append(weakref.ref(gen))
    interp.depth -= 1
    back, f.back = f.back, None
    if back is None:
        raise Finished(gen)
    interp.frame = back
    then, data = f.then, f.data
    if then is None:
        back.stack.append(gen)
        return back
    return then(interp, back, gen, data) or back


def YIELD_VALUE(interp: Interp, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    then, data = f.then, f.data
    interp.depth -= 1
    back = interp.leave_generator(f, "suspended")
    if back is None:
        raise Finished(value)
    if then is None:
        back.stack.append(value)
        return back
    return then(interp, back, value, data) or back


def SEND(interp: Interp, f: Frame, arg: int) -> Frame | None:
    value = f.stack.pop()
    receiver = f.stack[-1]
    if type(receiver) is InterpretedGenerator:
        return interp.resume_generator(f, receiver, value, None, arg, sent)
    if value is None:
        if type(receiver) in c_calls.ITERATORS and id(receiver) not in interp.trace.sources:
            try:
                f.stack.append(next_item(interp.trace, receiver))
            except StopIteration as stop:
                return sent(interp, f, STOP_VALUE.__get__(stop), arg)
            return None
        method = special_method(interp.trace, type(receiver), "__next__")
        args = [receiver]
    else:
        method = special_method(interp.trace, type(receiver), "send")
        args = [receiver, value]
    if is_a(method, types.FunctionType):
        return call_next(interp, f, method, args, sent, arg)
    if interp.trace.active:
        raise GraphBreak(step_eagerly, tuple(args), None, "FL416", f"yield from a {type(receiver).__name__}").to(_stepped, arg)
    return _stepped(interp, f, step_eagerly(*args), arg)


def _stepped(interp: Interp, f: Frame, step: Stepped, arg: int) -> Frame | None:
    trace = interp.trace
    if trace.active:
        _loaded(trace, step, "ended")
    value = _loaded(trace, step) if trace.active else step.value
    if step.ended:
        return sent(interp, f, value, arg)
    f.stack.append(value)
    return None


def sent(interp: Interp, f: Frame, value: Any, arg: int) -> Frame | None:
    f.stack.pop()
    f.stack.append(value)
    f.ip = arg
    return None


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
