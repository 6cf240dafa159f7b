"""The parts of an interpreter, each alone."""

from __future__ import annotations

import sys

import pytest

from fineline.bytecode.code import CODES
from fineline.frames.frame import NO_BREAKS, BreakCounts, Frame, InterpretedGenerator
from fineline.frames.graph_breaks import CaptureAborted
from fineline.frames.run_limits import SHALLOW, RunLimits, frames_below
from fineline.frames.stand_ins import StandIns
from fineline.identity import IdentityMap
from fineline.tracing.capture_outcome import CaptureOutcome
from fineline.tracing.eager_code import EagerCode
from fineline.tracing.interp import NestedCaptures
from fineline.tracing.tracebacks import ExceptionState


def users() -> None:
    """Has a frame in these tests; nobody runs it."""


def frame() -> Frame:
    return Frame(CODES[users.__code__], [], {}, {}, [], None)


def test_the_recursion_limit_counts_the_frames_below() -> None:
    limits = RunLimits()
    limits.depth = SHALLOW + 1
    limits.check_depth()
    assert SHALLOW < limits.max_depth < sys.getrecursionlimit() - frames_below() + 2
    limits.depth = limits.max_depth + 1
    with pytest.raises(RecursionError):
        limits.check_depth()


def test_extras_belong_to_the_frame_that_sets_them() -> None:
    first, second = frame(), frame()
    assert first.extras is second.extras and first.extras.breaks == NO_BREAKS and first.extras.whole
    first.own_extras().breaks = BreakCounts(1, 2)
    assert first.own_extras() is first.extras and (first.extras.breaks, second.extras.breaks) == (BreakCounts(1, 2), NO_BREAKS)
    with pytest.raises(AttributeError):
        second.extras.whole = False  # type: ignore[misc, union-attr]


def test_a_suspended_generator_goes_when_nothing_of_it_is_to_run() -> None:
    stand_ins, gen = StandIns(), InterpretedGenerator(frame(), lambda *args: None)
    stand_ins.add([gen])
    assert stand_ins.alive() == [gen]
    stand_ins.running = True
    stand_ins.bury(gen)
    assert (gen.state, gen.frame, stand_ins.take_dying()) == ("closed", None, [])


@pytest.mark.parametrize("anew", [False, True])
def test_the_context_of_an_exception_is_set_once(anew: bool) -> None:
    state, old, raised = ExceptionState(), KeyError("old"), ValueError("raised")
    state.handled, raised.__context__ = KeyError("handled"), old
    state.chain(raised, anew)
    assert raised.__context__ is (state.handled if anew else old)


def test_a_chain_of_contexts_has_no_cycle() -> None:
    state, inner, raised = ExceptionState(), KeyError("inner"), ValueError("raised")
    state.handled, inner.__context__ = inner, raised
    state.chain(raised, anew=True)
    assert raised.__context__ is inner and inner.__context__ is None


def test_an_outcome_says_where_and_why() -> None:
    outcome, f = CaptureOutcome(), frame()
    assert outcome.fail("FL413", "too odd", f) is f and outcome.failure == ("FL413", "too odd")
    assert outcome.failed_at == (__file__, f.line) and outcome.failed_stack[-1][2] == "users"
    error = KeyError("e")
    assert type(outcome.abandon(error)) is CaptureAborted and outcome.abandoned is error
    outcome.interrupt = error
    assert outcome.is_interrupt(error, IdentityMap()) and not outcome.is_interrupt(KeyError("other"), IdentityMap())


def test_nothing_is_captured_apart_at_first() -> None:
    nested = NestedCaptures()
    assert not nested.any()
    nested.index_modes.append(None)
    assert not nested.any()  # a mode is no capture


def test_the_pause_ends_in_eager_code() -> None:
    eager = EagerCode()
    with eager.pause.interrupted():
        assert eager.fate(captures=False) == "eager"
    eager.outside = "skipped"
    assert eager.fate(captures=True) == "skipped"
