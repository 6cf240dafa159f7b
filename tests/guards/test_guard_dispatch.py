"""The dispatcher, with either evaluator: shapes of calls, order of entries, errors, re-entrance, threads, lifetimes."""

from __future__ import annotations

import gc
import logging
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from fineline.region import guard_dispatch
from fineline.region.guard_dispatch import Evaluator, Handlers, make_deferred_dispatcher, make_dispatcher, make_guard_program

pytest.importorskip("fineline._native")


@pytest.fixture(params=["native", "reference"])
def which(request: pytest.FixtureRequest) -> Evaluator:
    return request.param


def missed(args: tuple, kwargs: dict) -> tuple:
    return "miss", args, kwargs


def equal_to(which: Evaluator, *values: Any) -> Any:
    """A program that hits if each root equals the value, and delivers the roots in reverse order."""
    steps = []
    for position, value in enumerate(values):
        steps += [("root", position, -1, position), ("eq", -1, position, value)]
    return make_guard_program(len(values), steps, tuple(range(len(values)))[::-1], which)


def tagged(tag: str) -> Callable:
    return lambda *values: (tag, *values)


def test_no_entries(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    assert dispatcher.entries == []
    assert dispatcher(1, b=2) == ("miss", (1,), {"b": 2})
    assert dispatcher() == ("miss", (), {})


def test_handlers_are_loaded_at_the_first_call(which: Evaluator) -> None:
    loads: list[int] = []
    told: list[BaseException] = []

    def load() -> Handlers:
        loads.append(len(loads))
        if loads == [0]:
            raise OSError("not yet")
        return Handlers(missed, lambda error, program: told.append(error), (int, lambda out: out[0] + out[1]))

    dispatcher = make_deferred_dispatcher(load, which)
    assert loads == [] and dispatcher.entries == []
    with pytest.raises(OSError, match="not yet"):
        dispatcher(1)
    assert [dispatcher(1, b=2), dispatcher()] == [("miss", (1,), {"b": 2}), ("miss", (), {})] and loads == [0, 1]
    dispatcher.set_entries([(1, (), equal_to(which, 1), lambda x: (x, 4)), (1, (), equal_to(which, 2), lambda x: x / 0)])
    assert dispatcher(1) == 5
    with pytest.raises(ZeroDivisionError) as raised:
        dispatcher(2)
    assert told == [raised.value] and loads == [0, 1]


def test_a_first_call_inside_the_load(which: Evaluator) -> None:
    """As in the handler of a signal: both get what they have loaded."""
    inside: list[Any] = []

    def load() -> Handlers:
        if not inside:
            inside.append(None)
            inside.append(dispatcher("inner"))
        return Handlers(missed)

    dispatcher = make_deferred_dispatcher(load, which)
    assert dispatcher("outer") == ("miss", ("outer",), {}) and inside == [None, ("miss", ("inner",), {})]


def test_a_deferred_dispatcher_is_freed(which: Evaluator) -> None:
    class Owner:
        def load(self) -> Handlers:
            return Handlers(self.missed)

        def missed(self, args: tuple, kwargs: dict) -> tuple:
            return args

    owner = Owner()
    dispatcher = make_deferred_dispatcher(owner.load, which)
    assert dispatcher(1) == (1,)
    gone = weakref.ref(owner)
    owner.dispatcher = dispatcher
    del owner, dispatcher
    gc.collect()
    assert gone() is None


def test_what_a_native_dispatcher_needs() -> None:
    native = pytest.importorskip("fineline._native").Dispatcher
    for wrong in ({}, {"miss": missed, "load": lambda: None}):
        with pytest.raises(TypeError, match="either miss or load"):
            native(**wrong)
    for result in (None, (missed, None)):
        with pytest.raises(TypeError):
            native(load=lambda result=result: result)(1)


def test_shapes_of_calls(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    entries = [
        (2, (), equal_to(which, 1, 2), tagged("two")),
        (1, ("b",), equal_to(which, 1, 2), tagged("one and b")),
        (0, ("a", "b"), equal_to(which, 1, 2), tagged("a, b")),
        (0, ("b", "a"), equal_to(which, 2, 1), tagged("b, a")),
        (0, (), equal_to(which), tagged("nothing")),
    ]
    dispatcher.set_entries(entries)
    assert dispatcher.entries == entries
    for _ in range(3):
        assert dispatcher(1, 2) == ("two", 2, 1)
        assert dispatcher(1, b=2) == ("one and b", 2, 1)
        assert dispatcher(a=1, b=2) == ("a, b", 2, 1)
        assert dispatcher(b=2, a=1) == ("b, a", 1, 2)
        assert dispatcher() == ("nothing",)
        assert dispatcher(1, c=2) == ("miss", (1,), {"c": 2})
        assert dispatcher(1) == ("miss", (1,), {})
        assert dispatcher(1, 3) == ("miss", (1, 3), {})
        assert dispatcher(*(1,), **{"".join(["b"]): 2}) == ("one and b", 2, 1)


def test_keyword_named_self(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    dispatcher.set_entries([(0, ("self",), None, tagged("self"))])
    assert dispatcher(self=1) == ("self", 1)
    assert dispatcher(args=1) == ("miss", (), {"args": 1})


def test_no_program_always_hits(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    dispatcher.set_entries([(1, ("k",), None, tagged("roots"))])
    assert dispatcher(1, k=2) == ("roots", 1, 2)


def test_order_of_entries(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    anything = make_guard_program(1, [("root", 0, -1, 0)], (), which)
    dispatcher.set_entries([(1, (), equal_to(which, 1), tagged("one")), (1, (), anything, tagged("any"))])
    assert dispatcher(1) == ("one", 1)
    assert dispatcher(2) == ("any",)
    assert dispatcher(1) == ("any",)  # the last hit is tried first
    dispatcher.set_entries(dispatcher.entries)
    assert dispatcher(1) == ("one", 1)


def test_errors_of_targets_and_misses(which: Evaluator) -> None:
    def fail(*args: Any) -> None:
        raise LookupError("target")

    def fail_miss(args: tuple, kwargs: dict) -> None:
        raise LookupError("miss")

    dispatcher = make_dispatcher(fail_miss, which)
    dispatcher.set_entries([(1, (), equal_to(which, 1), fail), (1, (), None, tagged("not reached"))])
    with pytest.raises(LookupError, match="target") as caught:
        dispatcher(1)
    assert caught.value.__context__ is None
    with pytest.raises(LookupError, match="miss"):
        dispatcher()


def test_an_error_in_a_guard_is_a_miss(which: Evaluator) -> None:
    def fail(value: Any) -> bool:
        raise LookupError

    contexts = []

    def miss(args: tuple, kwargs: dict) -> Any:
        contexts.append(sys.exc_info())
        return "missed"

    dispatcher = make_dispatcher(miss, which)
    steps = [("root", 0, -1, 0), ("predicate", -1, 0, (fail, "fails"))]
    dispatcher.set_entries([(1, (), make_guard_program(1, steps, (), which), tagged("hit"))])
    assert dispatcher(1) == "missed"
    assert contexts == [(None, None, None)]


def test_recursion(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)

    def countdown(n: int) -> list:
        return [n, *dispatcher(n - 1)] if n else [0]

    steps = [("root", 0, -1, 0), ("type", -1, 0, int)]
    dispatcher.set_entries([(1, (), make_guard_program(1, steps, (0,), which), countdown)])
    assert dispatcher(20) == list(range(20, -1, -1))


def test_entries_replaced_while_a_target_runs(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    ended = []

    class Target:
        def __call__(self, value: int) -> str:
            dispatcher.set_entries([])
            gc.collect(0)
            return f"ran {value}"

        def __del__(self) -> None:
            ended.append(True)

    dispatcher.set_entries([(1, (), equal_to(which, 1), Target())])
    assert dispatcher(1) == "ran 1"
    assert ended
    assert dispatcher(1) == ("miss", (1,), {})


def test_entries_replaced_while_a_guard_runs(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)

    def replace(value: Any) -> bool:
        dispatcher.set_entries([(1, (), None, tagged("new"))])
        gc.collect(0)
        return True

    steps = [("root", 0, -1, 0), ("predicate", -1, 0, (replace, "replaces"))]
    dispatcher.set_entries([(1, (), make_guard_program(1, steps, (0,), which), tagged("old"))])
    assert dispatcher(1) == ("old", 1)
    assert dispatcher(1) == ("new", 1)


def test_entries_are_checked(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    with pytest.raises(ValueError):
        dispatcher.set_entries([(1, ("k",), equal_to(which, 1), tagged("x"))])
    assert dispatcher.entries == []


def test_many_outputs(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    values = list(range(3000))
    steps = [("root", 0, -1, 0), *[("index", i + 1, 0, i) for i in range(3000)]]
    program = make_guard_program(1, steps, tuple(range(1, 3001)), which)
    dispatcher.set_entries([(1, (), program, lambda *outputs: list(outputs))])
    assert dispatcher(values) == values


def test_outputs_survive_what_the_target_does(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)

    class Value:
        pass

    def target(holder: dict, value: Any) -> Any:
        holder.clear()
        gc.collect(0)
        return value

    steps = [("root", 0, -1, 0), ("key", 1, 0, "x")]
    dispatcher.set_entries([(1, (), make_guard_program(1, steps, (0, 1), which), target)])
    for _ in range(3):
        assert type(dispatcher({"x": Value()})) is Value


def test_weak_references_and_cycles(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)
    program = equal_to(which, 1)
    dead = [weakref.ref(dispatcher), weakref.ref(program)]
    dispatcher.set_entries([(1, (), program, lambda value, own=dispatcher: own)])
    assert dispatcher(1) is dispatcher
    del dispatcher, program
    gc.collect()
    assert [reference() for reference in dead] == [None, None]


def test_a_cycle_through_a_payload(which: Evaluator) -> None:
    class Holder:
        pass

    holder = Holder()
    holder.program = make_guard_program(0, [("pin", 0, -1, holder)], (0,), which)
    assert holder.program.check(()) == (holder,)
    dead = weakref.ref(holder)
    del holder
    gc.collect()
    assert dead() is None


def test_stored_on_a_class_it_does_not_bind(which: Evaluator) -> None:
    dispatcher = make_dispatcher(missed, which)

    class Owner:
        call = dispatcher

    assert Owner().call(1) == ("miss", (1,), {})


def test_threads(which: Evaluator) -> None:
    """Two callers, and a third thread that keeps replacing the entries."""
    dispatcher = make_dispatcher(missed, which)
    interval = sys.getswitchinterval()
    wrong: list[Any] = []
    done = threading.Event()

    class Holder:
        def __init__(self, value: int) -> None:
            self.value = value

    def entries(value: int) -> list:
        steps = [
            ("root", 0, -1, 0), ("type", -1, 0, Holder), ("dict", 1, 0, None), ("key", 2, 1, "value"),
            ("eq", -1, 2, value), ("predicate", -1, 2, (lambda v: v == value, "again, in Python")),
        ]  # fmt: skip
        return [(1, (), make_guard_program(1, steps, (2,), which), lambda found: (value, found))]

    def call() -> None:
        for i in range(3000):
            holder = Holder(i % 3)
            result = dispatcher(holder)
            if result != (i % 3, i % 3) and result != ("miss", (holder,), {}):
                wrong.append(result)

    def replace() -> None:
        while not done.is_set():
            dispatcher.set_entries([*entries(0), *entries(1)])
            dispatcher.set_entries([*entries(2), *entries(0)])

    sys.setswitchinterval(1e-5)
    try:
        callers = [threading.Thread(target=call) for _ in range(2)]
        replacer = threading.Thread(target=replace)
        for thread in (*callers, replacer):
            thread.start()
        for thread in callers:
            thread.join()
        done.set()
        replacer.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_programs_of_the_other_evaluator_are_refused() -> None:
    with pytest.raises(TypeError):
        make_dispatcher(missed, "native").set_entries([(1, (), equal_to("reference", 1), tagged("x"))])
    with pytest.raises(TypeError):
        make_dispatcher(missed, "native").set_entries([(1, (1,), None, tagged("x"))])


def test_without_the_extension(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(guard_dispatch, "CORE", None)
    guard_dispatch._native_core.cache_clear()
    try:
        with caplog.at_level(logging.WARNING, logger="fineline"):
            dispatcher = make_dispatcher(missed)
            dispatcher.set_entries([(1, (), equal_to("native", 1), tagged("hit"))])
            assert dispatcher(1) == ("hit", 1)
        assert type(dispatcher) is guard_dispatch.ReferenceDispatcher
        assert len(caplog.records) == 1
    finally:
        guard_dispatch._native_core.cache_clear()


def test_an_unfinished_result_is_finished_when_the_arguments_are_free(which: Evaluator) -> None:
    """The callable gets a tuple that begins with an object of the type; nothing holds what the guards have read by then."""

    class Marker:
        pass

    class Held:
        pass

    holder, told = [Held()], []
    inner = weakref.ref(holder[0])

    def target(value: Any) -> Any:
        holder.clear()
        return Marker(), [1]

    def finish(out: Any) -> Any:
        told.append(inner())
        return out[1]

    dispatcher = make_dispatcher(missed, which, None, (Marker, finish))
    steps = (("root", 0, -1, 0), ("index", 1, 0, 0))
    dispatcher.set_entries([(1, (), make_guard_program(1, steps, (1,), which), target)])
    assert dispatcher(holder) == [1]
    assert told == [None]


@pytest.mark.parametrize("result", [(1, 2), (), [object(), 2], (1, 2, 3), None])
def test_other_results_are_given_as_they_are(which: Evaluator, result: Any) -> None:
    dispatcher = make_dispatcher(missed, which, None, (KeyError, lambda out: pytest.fail("finished")))
    dispatcher.set_entries([(0, (), None, lambda: result)])
    assert dispatcher() is result


def test_what_finishing_raises_is_told(which: Evaluator) -> None:
    told: list[Any] = []
    error = ValueError("late")

    def finish(out: Any) -> Any:
        raise error

    dispatcher = make_dispatcher(missed, which, lambda e, program: told.append((e, program)), (KeyError, finish))
    dispatcher.set_entries([(0, (), None, lambda: (KeyError(), []))])
    with pytest.raises(ValueError, match="late"):
        dispatcher()
    assert told == [(error, None)]
