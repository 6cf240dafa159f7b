"""Suspended generators: how the interpreter resumes them, leaves them, and closes those without references."""

from __future__ import annotations

from types import GeneratorType
from typing import Any

from fineline.bytecode.version import CURRENT
from fineline.cpython import protocols
from fineline.frames.frame import Frame, InterpretedGenerator, delegate
from fineline.frames.graph_breaks import Delivery
from fineline.interp.opcodes.flow import SENT, call_next
from fineline.kinds import is_a
from fineline.tracing.interp import Interp


def resume_generator(
    interp: Interp,
    f: Frame | None,
    gen: InterpretedGenerator,
    value: Any,
    then: Delivery | None = None,
    on_stop: Delivery | None = None,
    throw: BaseException | None = None,
) -> Frame | None:
    """Resumes a suspended generator; a yielded value is delivered to ``then``, the returned value to ``on_stop``."""
    if type(gen.given) is GeneratorType:
        assert f is not None
        frame = interp.call(f, protocols.go_on, [gen.given, value, throw], None, then)
        assert frame is not None
        frame.own_extras().on_stop = on_stop
        return frame
    if gen.state == "running":
        raise ValueError("generator already executing")
    frame = gen.frame
    if gen.state == "closed" or frame is None:
        if throw is not None:
            raise throw
        if on_stop is not None:
            assert f is not None
            return interp.finish(f, None, on_stop)
        raise StopIteration
    if gen.state == "new":
        if throw is not None:
            gen.state, gen.frame = "closed", None
            if is_a(throw, StopIteration) and CURRENT.converts_at_start:
                found: Frame | None = interp.throw(stopped(throw), again=True)
                return found
            raise throw
        if value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
    receiver = delegate(frame) if throw is not None else None
    limits = interp.limits
    limits.depth += 1
    if limits.depth > limits.max_depth:
        try:
            limits.check_depth()
        except RecursionError:
            limits.depth -= 1
            raise
    extras = frame.own_extras()
    gen.state, extras.generator = "running", gen
    gen.outer = interp.exceptions.handled
    if gen.handled is not None:
        interp.exceptions.handled = gen.handled
    frame.back, frame.then, extras.on_stop = f, then, on_stop
    interp.frame = frame
    if throw is None:
        frame.stack.append(value)
        return frame
    if receiver is None:
        frame.stack.append(None)
        raise throw
    return _throw_inside(interp, frame, receiver, throw)


def _throw_inside(interp: Interp, frame: Frame, receiver: Any, throw: BaseException) -> Frame | None:
    """``yield from``: the exception goes to the inner iterator; the outer generator yields the values that the inner one yields."""
    frame.ip -= 1
    if is_a(throw, GeneratorExit):
        if receiver.state == "suspended" if is_a(receiver, InterpretedGenerator) else hasattr(receiver, "close"):
            return interp.call(frame, protocols.close_then_raise, [receiver, throw])
        raise throw
    if is_a(receiver, InterpretedGenerator):
        return interp.resume_generator(frame, receiver, None, None, SENT, throw)
    method = getattr(receiver, "throw", None)
    if method is None:
        # At the ``yield``, where it may end the iteration.
        frame.ip += 1
        raise throw
    return call_next(interp, frame, method, [throw], SENT) or frame


def stopped(e: BaseException) -> RuntimeError:
    """Returns the error that replaces a ``StopIteration`` that leaves a generator (PEP 479)."""
    error = RuntimeError("generator raised StopIteration")
    error.__cause__ = error.__context__ = e
    return error


def leave_generator(interp: Interp, f: Frame, state: str) -> Frame | None:
    gen = f.extras.generator
    assert gen is not None
    gen.state, f.own_extras().generator = state, None
    interp.exceptions.handled, gen.outer = gen.outer, None
    if state == "closed":
        gen.frame = gen.handled = None
    back, f.back = f.back, None
    interp.frame = back
    return back


def close_dying(interp: Interp, f: Frame) -> Frame:
    return interp.call(f, protocols.close_abandoned, [interp.stand_ins.take_dying()], None, interp.discard) or f


def raise_after_dying(interp: Interp, error: BaseException) -> Frame:
    """Closes the generators that died with the frames that ``error`` has left, then raises ``error`` from the outermost frame."""
    frame = interp.push_function(None, protocols.close_abandoned_then_raise, [interp.stand_ins.take_dying(), error], None)
    assert frame is not None
    return frame
