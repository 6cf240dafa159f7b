"""The interpreter alone: frames, calls, exceptions, graph breaks and giving up, with no region and no program around it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fineline.errors import InternalError, Unsupported
from fineline.fake.fake_tensors import unsymbolic
from fineline.frames.frame import NULL, InterpretedGenerator
from fineline.frames.graph_breaks import DISCARD, CaptureAborted, DataDependentBranch, Delivery, Finished, GraphBreak, Restart
from fineline.interp.interpreter import Interpreter
from fineline.policy.decide import Rules
from fineline.policy.policy import Policy
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.report.operator_counter import OPEN
from fineline.tensor_ops.backing import FakeBacking
from fineline.tracing.lessons import Lessons
from tests.hosts import Host

BASE = 10


def interpreter(capture: bool = True, **options: Any) -> Interpreter:
    """The smallest one: its own trace, the default options, nothing that hears of graph breaks."""
    interp = Interpreter(Options(**options), Lessons())
    interp.trace.active = capture
    return interp


def run(interp: Interpreter, fn: Callable, *args: Any, **kwargs: Any) -> Any:
    """Runs ``fn`` as the outermost frame; where it is captured, with the arguments as the roots of the guards."""
    if interp.trace.active:
        interp.frame = entry_frame(interp, fn, args, kwargs)
    else:
        interp.push_function(None, fn, list(args), kwargs)
    return interp.run()


def targets(interp: Interpreter) -> list[Any]:
    return [node.target for node in interp.trace.recorder.graph.nodes if node.op.startswith("call")]


def stop(*args: Any) -> Any:
    """Breaks the graph: no capture looks into this function. Returns its arguments."""
    return args


def breaks_at_stop(interp: Interpreter, *others: Callable) -> Interpreter:
    interp.rules = Rules(Policy(disable=[stop, *others]).rules)
    return interp


# -- values: the same as CPython's ---------------------------------------------------------------------------------------
def branches(n: int) -> str:
    return "zero" if n == 0 else "small" if 0 < n < 10 else "other"


def loops(n: int) -> list:
    found = []
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        found.append(i)
    else:
        found.append("end")
    while n > 3:
        n -= 1
    return [found, n]


def comprehensions(n: int) -> tuple:
    return [i * n for i in range(n) if i], {i: -i for i in range(n)}, {i % 2 for i in range(n)}, sum(i for i in range(n))


def closures(n: int) -> tuple:
    total = 0

    def add(x: int) -> int:
        nonlocal total
        total += x
        return total

    return add(n), add(n), (lambda x, y=n: x + y + total)(1)


def parameters(n: int, /, a: int = 2, *rest: int, b: int = 3, **more: int) -> tuple:
    return n, a, rest, b, more


def calls(n: int) -> tuple:
    given, named = (n, 1), {"b": 5, "c": 6}
    return parameters(n), parameters(*given, 7, **named), parameters(n, b=1), max([n, 2]), str.upper("a")


def recursion(n: int) -> int:
    return 1 if n < 2 else n * recursion(n - 1)


def unpacking(n: int) -> tuple:
    first, *rest = range(n)
    (a, b), c = (n, 2), [*rest, first]
    return a, b, c, {**{"x": n}, "y": 1}


def texts(n: int) -> str:
    return f"{n:>4}|{n!r}|{'a' * n}|" + "%d" % n


def operators(n: int) -> tuple:
    return n + 1, n - 1, n * 2, n / 2, n // 2, n % 3, n**2, n << 1, n >> 1, n & 1, n | 8, n ^ 1, -n, ~n, not n, n < 2 <= n, n in (1, 4)


def subscripts(n: int) -> list:
    held = list(range(n))
    held[0], held[-1] = n, held[1:3]
    del held[1]
    return held


def matching(n: int) -> Any:
    match {"kind": "point", "at": (n, 1)}:
        case {"kind": "line"}:
            return None
        case {"kind": "point", "at": (x, int(y))} if x > y:
            return x, y
    return "none"


def handlers(n: int) -> list:
    found = []
    try:
        try:
            found.append([1, 2][n])
        except IndexError as e:
            found.append(type(e).__name__)
            raise ValueError(n) from e
        else:
            found.append("else")
        finally:
            found.append("finally")
    except ValueError as e:
        found.append((str(e), type(e.__cause__).__name__))
    return found


def leaves_through_finally(n: int) -> tuple:
    found = []
    for i in range(n):
        try:
            if i == 1:
                return i, found
        finally:
            found.append(i)
    return n, found


@contextlib.contextmanager
def noted(found: list) -> Iterator[int]:
    found.append("in")
    try:
        yield 1
    except KeyError:
        found.append("swallowed")
    finally:
        found.append("out")


def contexts(n: int) -> list:
    found: list = []
    with noted(found) as a, contextlib.suppress(ValueError):
        found.append(a)
        raise KeyError if n > 4 else ValueError
    return found


def count(n: int) -> Iterator[Any]:
    got = yield n
    yield from (x for x in range(n))
    return got


def generators(n: int) -> list:
    def outer() -> Iterator[Any]:
        found = yield from count(n)
        yield found

    it = outer()
    return [next(it), it.send("sent"), *it]


class Thing:
    kind = "thing"

    def __init__(self, n: int) -> None:
        self.n = n

    @property
    def twice(self) -> int:
        return self.n * 2

    def __add__(self, other: Any) -> Any:
        return Thing(self.n + other)

    def __getattr__(self, name: str) -> str:
        return f"no {name}"


def objects(n: int) -> tuple:
    thing = Thing(n) + 1
    thing.more = n
    return thing.n, thing.twice, thing.kind, thing.missing, thing.more, thing.__class__.__name__


def globals_(n: int) -> int:
    return n + BASE + len([sys])


PROGRAMS = [
    branches, loops, comprehensions, closures, parameters, calls, recursion, unpacking, texts, operators, subscripts, matching, handlers,
    leaves_through_finally, contexts, generators, objects, globals_,
]  # fmt: skip


@pytest.mark.parametrize("capture", [False, True], ids=["uncaptured", "captured"])
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_interpreter_gives_what_cpython_gives(fn: Callable, capture: bool) -> None:
    for n in (4, 6):
        interp = interpreter(capture)
        assert run(interp, fn, n) == fn(n)
        assert (interp.trace.active, interp.outcome.failure) == (capture, None)
        assert interp.exceptions.handled is None and interp.frame is not None and interp.frame.back is None


# -- frames ---------------------------------------------------------------------------------------------------------------
def test_push_function_binds_arguments_to_slots_and_leaves_the_rest_empty() -> None:
    interp = interpreter(capture=False)
    frame = interp.push_function(None, loops, [3], None)
    assert interp.frame is frame and interp.limits.depth == 1
    assert frame.local == [3, NULL, NULL] and frame.info.slots == ("n", "found", "i")
    assert (frame.function, frame.back, frame.ip, frame.stack) == (loops, None, 0, [])


def test_push_function_puts_the_closure_behind_the_variables() -> None:
    held = 5

    def inner(x: int) -> int:
        return x + held

    frame = interpreter(capture=False).push_function(None, inner, [1], None)
    assert frame.local == [1, inner.__closure__[0]]


def test_push_function_stacks_frames() -> None:
    interp = interpreter(capture=False)
    outer = interp.push_function(None, branches, [1], None)
    inner = interp.push_function(outer, recursion, [2], None)
    assert inner.back is outer and interp.frame is inner and interp.limits.depth == 2
    assert interp.run() == "small"  # what the inner one gives goes to the stack of the outer one, which has not looked at it


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [([], None, "missing 1 required positional argument"), ([1, 2], None, "takes 1 positional argument"), ([1], {"z": 1}, "unexpected keyword")],
    ids=["too few", "too many", "unknown name"],
)
def test_push_function_refuses_arguments_as_cpython_does(args: list, kwargs: dict | None, text: str) -> None:
    interp = interpreter(capture=False)
    with pytest.raises(TypeError, match=text):
        interp.push_function(None, branches, args, kwargs)
    assert interp.frame is None and interp.limits.depth == 0


def test_push_function_breaks_the_graph_at_a_coroutine_function() -> None:
    async def coroutine() -> None: ...

    with pytest.raises(GraphBreak) as caught:
        interpreter().push_function(None, coroutine, [], None)
    graph_break = caught.value
    assert (graph_break.fn, graph_break.error, graph_break.bound) == (coroutine, "FL405", False)


def test_then_gets_the_result_in_place_of_the_stack() -> None:
    interp, got = interpreter(capture=False), []
    outer = interp.push_function(None, branches, [0], None)
    interp.push_function(outer, recursion, [3], None, Delivery(lambda *args: got.append(args), DISCARD, "data"))
    assert interp.run() == "zero"
    assert got == [(interp, outer, 6, DISCARD, "data")] and outer.stack == []


def test_finish_pushes_or_hands_to_then() -> None:
    interp = interpreter(capture=False)
    f = interp.push_function(None, branches, [0], None)
    assert interp.finish(f, 1) is None and f.stack == [1]
    assert interp.finish(f, 2, Delivery(lambda *args: args, None, "data")) == (interp, f, 2, None, "data") and f.stack == [1]
    assert interp.finish(f, 3, DISCARD) is None and f.stack == [1]


def test_link_is_made_once_for_each_set_of_opaque_places() -> None:
    interp = interpreter(capture=False)
    info = interp.push_function(None, recursion, [2], None).info
    plain = interp.link(info)
    assert interp.link(info) is plain is info.linked
    at = next(n for n, i in enumerate(info.instructions) if i.name == "CALL")
    interp.lessons.eager_sites.add((info.code, at))
    opaque = interp.link(info)
    assert interp.link(info) is opaque is not plain
    assert [n for n, (a, b) in enumerate(zip(plain, opaque, strict=True)) if a != b] == [at]


# -- exceptions -----------------------------------------------------------------------------------------------------------
def raises(n: int) -> Any:
    raise LookupError(n)


def test_an_exception_that_nobody_handles_leaves_all_frames() -> None:
    interp = interpreter(capture=False)
    interp.push_function(interp.push_function(None, branches, [1], None), raises, [4], None)
    with pytest.raises(LookupError, match="4") as caught:
        interp.run()
    assert interp.frame is None and interp.limits.depth == 0 and not interp.stand_ins.running
    names = [entry.name for entry in caught.traceback]
    assert names[-2:] == ["branches", "raises"]


def test_unwind_goes_to_the_innermost_handler_and_cuts_the_stack() -> None:
    interp = interpreter(capture=False)
    outer = interp.push_function(None, handlers, [0], None)
    interp.push_function(outer, raises, [0], None)
    outer.ip = next(n for n, i in enumerate(outer.info.instructions) if i.name == "BINARY_SUBSCR") + 1
    outer.stack.extend(["left", "over"])
    error = IndexError()
    assert interp.unwind(error) is outer is interp.frame
    assert interp.limits.depth == 1
    assert outer.ip == outer.info.handler_at(outer.info.instructions.index(("BINARY_SUBSCR", 0))).target
    assert outer.stack == [error]


def test_a_raise_inside_a_handler_gets_the_handled_exception_as_context() -> None:
    def program() -> Any:
        try:
            raises(1)
        except LookupError:
            raise ValueError

    interp = interpreter(capture=False)
    with pytest.raises(ValueError) as caught:
        run(interp, program)
    assert type(caught.value.__context__) is LookupError and caught.value.__cause__ is None


def test_raise_again_keeps_the_context() -> None:
    def program() -> Any:
        try:
            raises(1)
        except LookupError:
            raise

    with pytest.raises(LookupError) as caught:
        run(interpreter(capture=False), program)
    assert caught.value.__context__ is None


def test_native_calls_find_the_handled_exception() -> None:
    interp = interpreter(capture=False)
    interp.exceptions.handled = error = KeyError("k")
    assert interp.native(lambda: sys.exc_info()[1], (), None) is error
    interp.exceptions.handled = None
    assert interp.native(lambda a, b: (sys.exc_info()[1], a, b), (1,), {"b": 2}) == (None, 1, 2)


def test_native_calls_find_the_frames_of_the_user() -> None:
    interp, found = interpreter(capture=False), []

    def look() -> None:
        f = sys._getframe(1)
        found.append((f.f_code.co_name, f.f_lineno, f.f_globals is globals()))

    outer = interp.push_function(None, branches, [0], None)
    interp.native(look, (), None)
    assert found == [("branches", outer.line, True)]


# -- graph breaks ---------------------------------------------------------------------------------------------------------
NEXT = Delivery(print)


def one_break(x: Any, fn: Callable = stop) -> Any:
    return [fn(x + 1, a=1)]


def handling(x: Any) -> Any:
    try:
        return stop(x)
    except (KeyError, OSError) as e:
        return f"handled {type(e).__name__}"
    finally:
        PASSED.append("finally")


PASSED: list[str] = []


def test_on_border_is_given_the_call_and_gives_its_result() -> None:
    interp, met = breaks_at_stop(interpreter()), []

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        met.append((interp, graph_break.fn, graph_break.args_[0].tolist(), graph_break.kwargs, graph_break.error, len(targets(interp)), interp.fate()))
        return "given"

    interp.host = Host(on_graph_break)
    assert run(interp, one_break, torch.zeros(2)) == ["given"]
    assert met == [(interp, stop, [1, 1], {"a": 1}, "FL400", 1, "skipped")]
    assert interp.eager.outside == "" and interp.eager.result is None


def test_a_host_that_only_makes_the_call_lets_capture_go_on() -> None:
    interp, met = breaks_at_stop(interpreter()), []
    interp.host = Host(before_eager_call=lambda interp, graph_break: met.append(graph_break))
    assert run(interp, lambda n: [stop(n), n], 3) == [(3,), 3]
    assert interp.trace.active and met == []


@pytest.mark.parametrize("capture", [True, False], ids=["captured", "uncaptured"])
def test_who_hears_of_a_graph_break(capture: bool) -> None:
    interp, met = interpreter(capture), []
    interp.frame = f = interp.push_function(None, branches, [1], None)
    interp.host = Host(lambda interp, graph_break: met.append("on_graph_break"), lambda interp, graph_break: met.append("before_eager_call"))
    assert interp.at_graph_break(GraphBreak(stop, (3,), None, "FL400", "why")) is f
    assert met == ["on_graph_break" if capture else "before_eager_call"]
    assert interp.eager.result == (None if capture else (3,), None)


@pytest.mark.parametrize(
    ("graph_break", "pending"),
    [
        (GraphBreak(stop, (3,), None, "FL400", "why"), ((3,), None)),
        (GraphBreak(stop, (3,), None, "FL400", "why").to(NEXT), ((3,), NEXT)),
        (GraphBreak(stop, (3,), None, "FL400", "why").discard().to(NEXT), ((3,), DISCARD)),
    ],
    ids=["to the stack", "to then", "nowhere"],
)
def test_where_the_result_of_a_graph_break_goes(graph_break: GraphBreak, pending: tuple) -> None:
    interp = interpreter()
    interp.push_function(None, branches, [1], None)
    interp.at_graph_break(graph_break)
    assert interp.eager.result == pending


@pytest.mark.parametrize(
    ("error", "result"), [(KeyError(1), "handled KeyError"), (OSError(2), "handled OSError"), (ValueError(3), None)], ids=repr
)
def test_what_a_break_raises_meets_the_handlers_of_the_user(error: Exception, result: str | None) -> None:
    interp = breaks_at_stop(interpreter())

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        raise error

    interp.host = Host(on_graph_break)
    PASSED.clear()
    if result is None:
        with pytest.raises(type(error)):
            run(interp, handling, 1)
    else:
        assert run(interp, handling, 1) == result
    assert PASSED == ["finally"]


@pytest.mark.parametrize("signal", [Restart("FL515", "no"), Finished("all")], ids=["restart", "finished"])
def test_who_cuts_segments_can_end_the_run_past_all_handlers(signal: BaseException) -> None:
    interp = breaks_at_stop(interpreter())

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        raise signal

    interp.host = Host(on_graph_break)
    PASSED.clear()
    with pytest.raises(type(signal)):
        run(interp, handling, 1)
    assert PASSED == []


def test_an_aborted_capture_leaves_through_finally_alone() -> None:
    interp = breaks_at_stop(interpreter())

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        raise CaptureAborted

    interp.host = Host(on_graph_break)
    PASSED.clear()
    with pytest.raises(CaptureAborted):
        run(interp, handling, 1)
    assert PASSED == ["finally"]


def test_abandon_keeps_the_reason_and_leaves_the_frames() -> None:
    interp, reason = interpreter(), Unsupported("no")
    interp.frame = entry_frame(interp, branches, (1,), {})
    with pytest.raises(CaptureAborted):
        interp.abandon(reason)
    assert interp.outcome.abandoned is reason and interp.frame is None


# -- giving up ------------------------------------------------------------------------------------------------------------
def test_fail_ends_the_capture_where_the_user_is() -> None:
    interp = interpreter()
    f = interp.push_function(None, branches, [1], None)
    interp.fail("FL413", "too odd", hint=False)
    assert not interp.trace.active and interp.outcome.failure == ("FL413", "too odd")
    assert interp.outcome.failed_at == (__file__, f.line) and interp.outcome.failed_stack[-1] == (__file__, f.line, "branches")
    assert interp.lessons.eager_sites == set()


def test_fail_with_a_hint_has_the_instruction_run_eagerly_next_time() -> None:
    interp = interpreter()
    f = interp.push_function(None, branches, [1], None)
    f.ip = 3
    interp.fail("FL413", "too odd", hint=True)
    assert interp.lessons.eager_sites == {(branches.__code__, 2)}


def test_fail_is_heard_once() -> None:
    interp = interpreter()
    interp.fail("FL413", "first", hint=False)
    interp.fail("FL427", "second", hint=True)
    assert interp.outcome.failure == ("FL413", "first") and interp.lessons.eager_sites == set()


@pytest.mark.parametrize(
    ("error", "breaks", "refused"),
    [("FL413", "any", False), ("FL413", "none", True), ("FL413", "declared", True), ("FL426", "none", False), ("FL901", "none", False)],
)
def test_fail_is_an_error_where_graph_breaks_are(error: str, breaks: str, refused: bool) -> None:
    interp, said = interpreter(breaks=breaks), []
    interp.host = Host(refusal=lambda *args: said.append(args) or Unsupported("refused"))
    frame = interp.push_function(None, branches, [1], None)
    with pytest.raises(CaptureAborted) if refused else contextlib.nullcontext():
        interp.fail(error, "too odd", hint=False)
    assert said == ([(error, "too odd", frame, "")] if refused else [])
    assert (type(interp.outcome.abandoned) is Unsupported) is refused and interp.trace.active is refused


def test_fail_goes_on_where_a_rule_declares_that_break() -> None:
    interp = interpreter(breaks="declared")
    interp.rules = Rules(Policy(breaks={"FL413": branches}).rules)
    interp.push_function(None, branches, [1], None)
    assert interp.declared("FL413").verb == "break" and interp.declared("FL427") is None
    interp.fail("FL413", "too odd", hint=False)
    assert interp.outcome.abandoned is None and not interp.trace.active


def test_on_fakes_nothing_has_happened_and_the_call_is_captured_anew() -> None:
    interp = interpreter()
    interp.use(FakeBacking(unsymbolic()))
    with pytest.raises(Restart) as caught:
        interp.fail("FL413", "too odd", hint=False)
    assert (caught.value.error, caught.value.text) == ("FL413", "too odd") and interp.trace.active


@pytest.mark.parametrize("breaks", ["any", "none"])
def test_a_branch_on_what_only_the_graph_knows(breaks: str) -> None:
    interp = interpreter(breaks=breaks)
    interp.push_function(None, branches, [1], None)
    with pytest.raises(CaptureAborted if breaks == "none" else Restart):
        interp.undecided(DataDependentBranch("u0 > 0"))
    assert (interp.outcome.abandoned is not None) == (breaks == "none")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, RecursionError], ids=lambda kind: kind.__name__)
def test_what_depends_on_the_moment_is_not_captured(kind: type[BaseException]) -> None:
    def fails() -> None:
        raise kind

    def program() -> str:
        try:
            return fails()
        except kind as e:
            return type(e).__name__

    interp = breaks_at_stop(interpreter(), fails)
    assert run(interp, program) == kind.__name__
    assert not interp.trace.active and interp.outcome.failure[0] == "FL426"
    assert (interp.outcome.interrupt is not None) == (kind is KeyboardInterrupt)


def test_an_interrupt_on_fakes_leaves_past_all_handlers() -> None:
    interp, error = interpreter(), KeyboardInterrupt()
    interp.frame = entry_frame(interp, handling, (1,), {})
    interp.use(FakeBacking(unsymbolic()))
    with pytest.raises(KeyboardInterrupt):
        interp.interrupted(error)
    assert interp.outcome.interrupt is error and interp.trace.active


def test_an_error_of_the_interpreter_is_none_of_the_user() -> None:
    def broken(interp: Interpreter, f: Any, arg: int) -> None:
        raise InternalError("broken")

    interp = interpreter()
    interp.frame = entry_frame(interp, handling, (1,), {})
    interp.frame.ops = [(broken, 0, 1)]
    with pytest.raises(CaptureAborted):
        interp.run()
    assert type(interp.outcome.abandoned) is InternalError


def test_a_long_loop_is_left_to_cpython_from_the_next_call_on() -> None:
    interp = interpreter()
    middle = interp.push_function(interp.push_function(None, calls, [1], None), recursion, [3], None)
    inner = interp.push_function(middle, recursion, [2], None)
    middle.ip = next(n for n, i in enumerate(middle.info.instructions) if i.name == "CALL") + 1
    interp.limits.jumps = 10
    interp.long_loop(inner)
    assert interp.limits.jumps == 0 and interp.outcome.failure[0] == "FL427"
    assert interp.lessons.eager_sites == {(recursion.__code__, middle.ip - 1)}


# -- what the capture is told -----------------------------------------------------------------------------------------------
def test_operators_and_reads_go_to_the_trace() -> None:
    interp, x = interpreter(), torch.ones(2)
    result = run(interp, lambda x, n: (x + BASE).mul(n).relu(), x, 2)
    assert result.tolist() == [22, 22]
    assert [t if type(t) is str else t.__name__ for t in targets(interp)] == ["add", "mul", "relu"]
    checked = {src.text(): src.checked for src in interp.trace.guards.reads.sources}
    assert "tensor" in checked["x"] and "eq" in checked["n"] and "eq" in checked["globals of " + __name__ + "['BASE']"]


def test_writes_go_to_the_mutation_log() -> None:
    interp, thing, held = interpreter(), Thing(1), [1]

    def program(thing: Thing, held: list) -> None:
        thing.n = 2
        held.append(3)

    run(interp, program, thing, held)
    assert (thing.n, held) == (2, [1, 3])
    written = {w.src.text(): (w.kind, w.before) for w in interp.trace.mutations.written.values()}
    assert written == {"thing.__dict__": ("dict", {"n": 1}), "held": ("list", [1])}


def test_nothing_is_recorded_without_capture() -> None:
    interp, thing = interpreter(capture=False), Thing(1)
    steps = len(interp.trace.guards.steps)
    assert run(interp, lambda x, thing: setattr(thing, "n", x + 1) or thing.n, torch.ones(1), thing).tolist() == [2]
    assert targets(interp) == [] and len(interp.trace.guards.steps) == steps and not interp.trace.mutations.written


@pytest.mark.parametrize(
    ("state", "fate"),
    [({}, OPEN), ({"outside": "eager"}, "eager"), ({"resumes": True}, "skipped"), ({"computing": True, "outside": "eager"}, "")],
    ids=["captured", "at a graph break", "in a block without capture", "none of the user's"],
)
def test_fate_of_an_operator(state: dict, fate: str) -> None:
    interp = interpreter()
    for name, value in state.items():
        setattr(interp.eager, name, value)
    assert interp.fate() == fate
    interp.trace.active = False
    assert interp.fate() == ("eager" if fate == OPEN else fate)


def test_class_value_pins_what_a_class_holds() -> None:
    interp, value = interpreter(), Thing.__dict__["twice"]
    assert interp.class_value(value) is value and interp.class_value(3) == 3
    assert interp.trace.sources[value].op == "pin" and 3 not in interp.trace.sources


# -- numbers that C asks for ------------------------------------------------------------------------------------------------
def asking(options: Options, lessons: Lessons, **changes: Any) -> Interpreter:
    """One of several runs of the same region, at the same instruction."""
    interp = Interpreter(options, lessons)
    interp.push_function(None, branches, [1], None).ip = 1
    for name, value in changes.items():
        setattr(interp.varying, name, value)
    return interp


def test_values_vary_says_when_earlier_runs_had_other_values() -> None:
    region = Options(), Lessons()
    first, second, third = asking(*region), asking(*region), asking(*region)
    assert not first.varying.values_vary(first, first.frame, [1], few=1)
    assert not first.varying.values_vary(first, first.frame, [2], few=1)  # a loop may come there several times in one run
    assert not second.varying.values_vary(second, second.frame, [2], few=1)
    assert third.varying.values_vary(third, third.frame, [3], few=1)
    assert third.varying.values_vary(third, third.frame, [1], few=1)  # once a place is known for it, it stays so


def test_values_vary_allows_a_few() -> None:
    region = Options(), Lessons()
    runs = [asking(*region) for _ in range(4)]
    assert [one.varying.values_vary(one, one.frame, [n], few=2) for n, one in enumerate(runs)] == [False, False, True, True]


@pytest.mark.parametrize("breaks", ["declared", "none"])
def test_values_vary_is_no_question_where_the_graph_may_not_break(breaks: str) -> None:
    options, lessons = Options(breaks=breaks), Lessons()
    assert not any(one.varying.values_vary(one, one.frame, [n], few=1) for n, one in enumerate([asking(options, lessons) for _ in range(3)]))
    assert lessons.numbers.asked == {}


def test_contents_vary_is_about_containers_that_are_known_to_vary() -> None:
    region, answers = (Options(), Lessons()), []
    for held in ([1], [1, 2], [1]):
        interp = asking(*region, unsteady={"held": "length"})
        interp.trace.read(held, interp.trace.guards.root(0, "held", held))
        answers.append(interp.varying.contents_vary(interp, interp.frame, held))
        assert not interp.varying.contents_vary(interp, interp.frame, [*held])  # made here
    assert answers == [False, False, False]
    interp = asking(*region, unsteady={"held": "length"})
    interp.trace.read(other := [1, 2, 3], interp.trace.guards.root(0, "held", other))
    assert interp.varying.contents_vary(interp, interp.frame, other)


# -- generators -------------------------------------------------------------------------------------------------------------
def suspended(interp: Interpreter) -> InterpretedGenerator:
    """A generator that the interpreter has made, and that has given its first item."""
    def program() -> Any:
        gen = count(2)
        return gen, next(gen)

    gen, first = run(interp, program)
    assert type(gen) is InterpretedGenerator and first == 2
    return gen


def test_native_code_drives_a_generator_of_the_interpreter() -> None:
    gen = suspended(interpreter(capture=False))
    assert gen.state == "suspended" and gen.send("x") == 0
    assert list(gen) == [1] and gen.state == "closed" and gen.frame is None


def test_what_native_code_throws_into_a_generator_leaves_it() -> None:
    gen = suspended(interpreter(capture=False))
    with pytest.raises(KeyError, match="thrown"):
        gen.throw(KeyError("thrown"))
    assert gen.state == "closed"


def test_the_value_of_a_generator_comes_with_stop_iteration() -> None:
    gen = suspended(interpreter(capture=False))
    found = [gen.send("got"), gen.send(None)]
    with pytest.raises(StopIteration) as caught:
        gen.send(None)
    assert found == [0, 1] and caught.value.value == "got"


def test_forget_generators_closes_them_without_running_them() -> None:
    interp = interpreter(capture=False)
    gen = suspended(interp)
    interp.stand_ins.forget()
    assert (gen.state, gen.frame) == ("closed", None)


def test_a_dropped_generator_runs_its_finally_before_the_next_instruction() -> None:
    def generator(found: list) -> Iterator[int]:
        try:
            yield 1
        finally:
            found.append("closed")

    def program() -> list:
        found: list = []
        gen = generator(found)
        next(gen)
        gen = None
        found.append("behind")
        return found

    interp = interpreter(capture=False)
    assert run(interp, program) == ["closed", "behind"] and interp.stand_ins.dying == []
