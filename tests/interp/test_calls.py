"""Calls in progress: what a handler does with one, where its result goes, and which graph breaks are whose."""

from __future__ import annotations

from typing import Any

import pytest

from fineline.builtins import calls
from fineline.errors import InternalError
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import DISCARD, Delivery, GraphBreak
from fineline.fx.recorder import NotForGraph
from fineline.interp.interpreter import Interpreter
from fineline.region.options import Options
from fineline.tracing.interp import Call
from fineline.tracing.lessons import Lessons

NEXT, INNER = Delivery(lambda *args: args[2:]), Delivery(lambda *args: None)


def double(n: int) -> int:
    return n * 2


@pytest.fixture
def interp() -> Interpreter:
    found = Interpreter(Options(), Lessons())
    found.trace.active = False
    return found


@pytest.fixture
def frame(interp: Interpreter) -> Frame:
    found = interp.push_function(None, double, [1], None)
    assert found is not None
    return found


def test_a_result_goes_to_the_stack_or_to_the_delivery(interp: Interpreter, frame: Frame) -> None:
    assert Call(interp, frame, len, [], None, None).finish(1) is None and frame.stack == [1]
    assert Call(interp, frame, len, [], None, NEXT).finish(2) == (2, None) and frame.stack == [1]
    assert Call(interp, frame, len, [()], None, None).run_natively() is None and frame.stack == [1, 0]


def test_the_arguments_of_a_call(interp: Interpreter, frame: Frame) -> None:
    assert Call(interp, frame, max, [1, 2], {"default": 3}, None).values() == (1, 2, 3)
    assert Call(interp, frame, max, [1, 2], None, None).values() == (1, 2)


def test_an_eager_call_is_a_graph_break_where_something_is_captured(interp: Interpreter, frame: Frame) -> None:
    call = Call(interp, frame, max, [1, 2], None, None)
    assert call.run_eagerly("FL410", "why") is None and frame.stack == [2]
    interp.trace.active = True
    with pytest.raises(GraphBreak) as caught:
        call.run_eagerly("FL410", "why")
    graph_break = caught.value
    assert (graph_break.fn, graph_break.args_, graph_break.error, graph_break.reason, graph_break.bound) == (max, (1, 2), "FL410", "why", False)


def test_what_is_called_instead_gives_the_result(interp: Interpreter, frame: Frame) -> None:
    call = Call(interp, frame, len, ["given"], None, NEXT)
    assert call.instead(max, [3, 4]) == (4, None)
    assert call.instead(max, [3, 4], None, lambda interp, f, value, then, *data: (value, then, data), "data") == (4, NEXT, ("data",))
    assert call.of(max, [5, 6]).run_natively() == (6, None)
    assert interp.finish(frame, "ignored", call.again()) == (5, None)
    assert interp.finish(frame, tuple, call.callee()) == (tuple("given"), None)
    inner = Call(interp, frame, double, [7], None, NEXT).interpret()
    assert inner is not None and inner.back is frame and inner.then is NEXT


def breaks(*args: Any) -> Any:
    raise GraphBreak(double, (), None, "FL400", "why")


def asks(*args: Any) -> Any:
    raise NotForGraph("it may change")


@pytest.mark.parametrize("then", [None, NEXT], ids=["to the stack", "to the delivery"])
def test_the_innermost_call_says_where_its_result_goes(
    interp: Interpreter, frame: Frame, monkeypatch: pytest.MonkeyPatch, then: Delivery | None
) -> None:
    monkeypatch.setitem(calls.CALLERS, type(len), breaks)
    with pytest.raises(GraphBreak) as caught:
        interp.call(frame, len, [()], None, then)
    assert caught.value.bound and caught.value.to(INNER).then is then


def test_a_call_that_reads_what_no_graph_can_rely_on_runs_eagerly(interp: Interpreter, frame: Frame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(calls.CALLERS, type(len), asks)
    with pytest.raises(GraphBreak) as caught:
        interp.call(frame, len, [()], None, NEXT)
    graph_break = caught.value
    assert (graph_break.fn, graph_break.args_, graph_break.error, graph_break.reason) == (len, ((),), "FL413", "it may change")
    assert graph_break.then is NEXT


@pytest.mark.parametrize("then", [None, NEXT], ids=["to the stack", "to the next"])
def test_a_graph_break_of_a_delivery_is_not_of_the_call_that_gave_the_value(interp: Interpreter, frame: Frame, then: Delivery | None) -> None:
    with pytest.raises(GraphBreak) as caught:
        interp.call(frame, len, [()], None, Delivery(breaks, then))
    assert caught.value.bound and caught.value.then is then
    with pytest.raises(InternalError):
        interp.call(frame, len, [()], None, Delivery(asks, then))


def test_a_break_goes_to_the_delivery_that_it_is_for() -> None:
    with pytest.raises(GraphBreak) as caught:
        INNER.of(breaks)
    assert caught.value.then is INNER
    assert GraphBreak(double, (), None, "FL400", "why").discard().to(INNER).then is DISCARD
