"""The frame state alone: what of a frame stack it keeps at a graph break, and whether frames made from it go on as the old ones would."""

from __future__ import annotations

import contextlib
import functools
import itertools
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fineline.codegen.escape import real_generator
from fineline.codegen.frame_restore import restore
from fineline.codegen.frame_snapshot import Snapshot, take_snapshot
from fineline.codegen.frame_state import Carried, Const, GeneratorRef, Made, Number, Object, Reduced, Root, alike, roots_of
from fineline.frames.frame import NULL, InterpretedGenerator
from fineline.frames.graph_breaks import Finished, GraphBreak, NotReconstructible
from fineline.identity import AddressSet
from fineline.interp.interpreter import Interpreter
from fineline.policy.decide import Rules
from fineline.policy.policy import Policy
from fineline.region.options import Options
from fineline.region.session.entry_frame import entry_frame
from fineline.tracing.lessons import Lessons
from tests.hosts import Host


def stop(*args: Any) -> Any:
    """The graph breaks here. In eager code it gives 5."""
    return 5


def interpreter(**options: Any) -> Interpreter:
    interp = Interpreter(Options(**options), Lessons())
    interp.rules = Rules(Policy(disable=[stop]).rules)
    return interp


def run(interp: Interpreter, passing: int = 0, keeps_variables: bool = False, **how: Any) -> Any:
    """Runs to the first call of ``stop`` (or, behind ``passing`` others, to a later one) -> the state there; else what the program gives."""
    left = itertools.count(-passing)

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        if next(left) < 0:
            return interp.beyond(graph_break)
        graph_break.keeps_variables = keeps_variables
        snapshot = take_snapshot(interp, graph_break, **how)
        # What is suspended goes on in the new frames alone.
        interp.stand_ins.forget()
        raise Finished(snapshot)

    interp.host = Host(on_graph_break)
    try:
        return interp.run()
    except Finished as done:
        return done.value


def snapshot_at_break(fn: Callable, *args: Any, **how: Any) -> Any:
    interp = interpreter()
    interp.frame = entry_frame(interp, fn, args, {})
    return run(interp, **how)


def go_on(snapshot: Snapshot, values: tuple, given: Any = 5, capture: bool = False) -> Any:
    """Runs the rest on another interpreter, with ``values`` for the live ones, and ``given`` for what the call gave: -> as ``run``."""
    interp = interpreter()
    interp.trace.active = capture
    for i, (name, v) in enumerate(zip((*snapshot.state.values.names, "result"), (*values, given), strict=True)):
        interp.trace.read(v, interp.trace.guards.root(i, name, v))
    then, containers, made = restore(snapshot.state, interp, values)
    interp.trace.made.update(made)
    for container in containers:
        interp.trace.expand(container)
    interp.eager.result = (given, then)
    return run(interp)


def live(snapshot: Snapshot) -> dict[str, Any]:
    return dict(zip(snapshot.state.values.names, snapshot.roots, strict=True))


def variables(snapshot: Snapshot, frame: int = 1) -> dict[str, Any]:
    """Returns the variables of a frame in the state; frame 0 is the interpreter's own, which calls the program."""
    shape = snapshot.state.shapes.frames[frame]
    return {name: spec for name, spec in zip(shape.info.slots, shape.local, strict=True) if spec != Const(NULL)}


# -- programs: behind the break they go on as CPython does -------------------------------------------------------------------
def variables_and_stack(n: list) -> Any:
    a, b = n[0] * 2, "text"
    return [a, (a, b), stop(a), b, n]


def called(n: list, a: int, /, b: int = 1, *, c: int = 2) -> Any:
    return n, a, stop(b), b, c


def frames(n: list) -> Any:
    return [called(n, 7, c=n[0]), called(n, 8)]


def loop_over_range(n: list) -> Any:
    return [(i, stop(i)) for i in range(3)] + [i + stop(i) for i in range(5, 0, -2)]


def loop_over_list(n: list) -> Any:
    found = []
    for x in n:
        found.append((x, stop(x)))
    return found


def loop_over_others(n: list) -> Any:
    found = []
    table = dict(enumerate(n))
    for (i, a), b, (k, v) in zip(enumerate(n, 1), reversed(n), table.items(), strict=True):
        found.append((i, a, b, k, v, stop(i)))
    return found


def loop_over_map(n: list) -> Any:
    return [x + stop(x) for x in map(lambda x: x * 2, filter(None, itertools.chain(n, (1, 2))))]


def handled(n: list) -> Any:
    try:
        n.index("none")
    except ValueError as e:
        given = stop(e)
        try:
            raise KeyError
        except KeyError as inner:
            return given, type(inner.__context__) is ValueError
    finally:
        n = stop(n)


def tried(n: list) -> Any:
    for x in n:
        try:
            if stop(x):
                raise LookupError(x)
        except LookupError as e:
            n = e.args
            continue
        finally:
            x = stop()
    return n, x


@contextlib.contextmanager
def context(n: list) -> Iterator[Any]:
    n = [*n, stop(n)]
    try:
        yield n
    finally:
        stop("end")


def blocks(n: list) -> Any:
    with context(n) as a, contextlib.suppress(KeyError):
        b = stop(a)
        raise KeyError
    return a, b


def closures(n: list) -> Any:
    total = n[0]

    def add(x: int) -> int:
        nonlocal total
        total += stop(x)
        return total

    return add(1), add(2), total


def counting(n: list) -> Iterator[Any]:
    got = yield stop(n)
    try:
        for x in n:
            got = yield x, got, stop(x)
    finally:
        n.append("closed")


def in_a_generator(n: list) -> Any:
    return [*counting(n)], sum(stop(x) for x in n)


def suspended(n: list) -> Any:
    gen = counting(n)
    first = next(gen)
    return first, stop(gen is None), gen.send("a"), stop(), [*gen], n


def delegating(n: list) -> Any:
    def outer() -> Iterator[Any]:
        found = yield from counting(n)
        yield found

    return [(x, stop(x)) for x in outer()]


def handled_in_generators(n: list) -> Any:
    """A generator has its own exception being handled; after it, the caller has its own again."""

    def handling() -> Iterator[Any]:
        try:
            n.index("none")
        except ValueError:
            yield stop()
            raise

    found: list = []
    gen = handling()
    try:
        raise KeyError
    except KeyError:
        try:
            found.append(next(gen))
            stop()
            raise
        except KeyError as e:
            found.append(type(e).__name__)
    stop()
    try:
        next(gen)
    except ValueError as e:
        found.append(type(e).__name__)
    return found


class Countdown:
    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        self.n -= 1
        if stop(self.n) and self.n < 0:
            raise StopIteration
        return self.n


def loop_over_object(n: list) -> Any:
    return [x for x in Countdown(n[0])], next(Countdown(0), "none")


class Thing:
    def __init__(self, n: list) -> None:
        self.n = stop(n)

    @property
    def value(self) -> Any:
        return stop(self.n)

    def __bool__(self) -> bool:
        return bool(stop(self.n))

    def __add__(self, other: Any) -> Any:
        return stop(self) + other


def continuations(n: list) -> Any:
    """Where the result of the call goes elsewhere than to the stack of a frame."""
    thing = Thing(n)
    return thing.n, thing.value, "yes" if thing else "no", thing + 1, getattr(thing, "value"), [Thing(n).value for _ in range(2)]


class Holder:
    def __init__(self, n: list) -> None:
        self.gen = counting(n)

    def step(self) -> Any:
        return next(self.gen)


def holders(n: list) -> Any:
    """Objects made here that hold a generator under way."""
    thing, gen = Holder(n), counting(n)
    held, table, step = [next(gen), gen], {"gen": gen}, thing.step
    first = step()
    return stop(), first, step(), next(held[1]), next(table["gen"]), held[1] is table["gen"], thing is step.__self__


def partial(n: list) -> Any:
    return functools.partial(called, n, b=3)(4), sorted(n, key=lambda x: -x), stop(*n, **{"a": 1} and {})


PROGRAMS = [
    variables_and_stack, frames, loop_over_range, loop_over_list, loop_over_others, loop_over_map, handled, tried, blocks, closures, in_a_generator,
    suspended, delegating, handled_in_generators, loop_over_object, continuations, holders, partial,
]  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_frames_made_from_the_state_go_on_as_the_old_ones(fn: Callable) -> None:
    expected, breaks = fn([3, 4]), 0
    while type(snapshot := snapshot_at_break(fn, [3, 4], passing=breaks)) is Snapshot and breaks < 50:
        snapshot.pass_on()
        assert go_on(snapshot, tuple(snapshot.roots)) == expected
        breaks += 1
    assert breaks and snapshot == expected


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_frames_can_be_taken_apart_at_each_break(fn: Callable) -> None:
    snapshot, breaks = snapshot_at_break(fn, [3, 4]), 0
    while type(snapshot) is Snapshot and breaks < 50:
        snapshot.pass_on()
        snapshot = go_on(snapshot, tuple(snapshot.roots), capture=True)
        breaks += 1
    assert snapshot == fn([3, 4])


# -- what is alive --------------------------------------------------------------------------------------------------------------
def some_are_dead(x: list, y: list) -> Any:
    dead, used, held = [x], [y], [x, y]
    used = [dead[0], stop(y)]
    return used, y, lambda: held


def test_variables_that_nothing_reads_any_more_are_left_out() -> None:
    snapshot = snapshot_at_break(some_are_dead, [1], [2])
    assert set(variables(snapshot)) == {"y", "held"}  # a cell stays, as a closure may hold it
    assert [name for name in snapshot.state.values.names] == ["y", "held", "some_are_dead_value"]


@pytest.mark.parametrize("raises", [True, False], ids=["the call may raise", "others look at them"])
def test_variables_that_nothing_reads_stay_where_somebody_looks(raises: bool) -> None:
    interp = interpreter()
    interp.lessons.functions.inspected |= set() if raises else {some_are_dead.__code__}
    interp.frame = entry_frame(interp, some_are_dead, ([1], [2]), {})
    snapshot = run(interp, keeps_variables=raises)
    assert set(variables(snapshot)) == {"x", "y", "dead", "used", "held"}
    assert snapshot.state.shapes.frames[1].whole is not raises


def test_a_live_value_is_there_once_and_named_after_its_variable() -> None:
    def program(x: list) -> Any:
        y = x
        return [x, y, stop(x), x, y]

    snapshot, x = snapshot_at_break(program, x := [1]), x
    assert snapshot.state.values.names == ("x",) and snapshot.roots[0] is x
    assert variables(snapshot) == {"x": Root(0), "y": Root(0)}
    assert snapshot.state.shapes.frames[1].stack[:2] == (Root(0), Root(0))


def test_other_values_can_take_the_place_of_the_live_ones() -> None:
    snapshot = snapshot_at_break(variables_and_stack, [3])
    assert live(snapshot) == {"n": [3]}
    other = ["other"]
    out = go_on(snapshot, (other,), given="given")
    assert out == [6, (6, "text"), "given", "text", other] and out[-1] is other


def test_what_is_known_is_part_of_the_shape_or_else_a_live_value() -> None:
    def program(n: int) -> Any:
        a, b = n + 1, "text"
        return [stop(), a, b]

    snapshot = snapshot_at_break(program, 3)
    assert variables(snapshot) == {"a": Const(4), "b": Const("text")} and snapshot.roots == []
    snapshot = snapshot_at_break(program, 3, constants=False)
    assert live(snapshot) == {"a": 4, "b": "text"}
    assert go_on(snapshot, (7, "u")) == [5, 7, "u"]


def test_a_number_that_was_only_passed_on_is_a_live_value() -> None:
    snapshot = snapshot_at_break(lambda n: [stop(), n], 1000)
    assert live(snapshot) == {"n": 1000}


def test_a_tuple_of_the_program_is_taken_apart() -> None:
    def program(n: list) -> Any:
        pair = (n, 1)
        return stop(), pair

    snapshot = snapshot_at_break(program, [2])
    assert variables(snapshot) == {"pair": Made(tuple, (Root(0), Const(1)))} and snapshot.roots == [[2]]


def test_a_tuple_that_something_else_holds_as_well_stays_whole() -> None:
    def program(n: list) -> Any:
        pair = (n, 1)
        held = [pair]
        return stop(), pair, held

    snapshot = snapshot_at_break(program, [2])
    assert live(snapshot) == {"pair": ([2], 1), "held": [([2], 1)]} and live(snapshot)["held"][0] is live(snapshot)["pair"]


# -- where the frames are ---------------------------------------------------------------------------------------------------------
def test_the_place_is_the_code_of_each_frame_and_how_far_it_is() -> None:
    snapshot = snapshot_at_break(frames, [3])
    names = [shape.info.code.co_name for shape in snapshot.state.shapes.frames]
    assert names == ["_call", "frames", "called"] and snapshot.state.resumption.top == 2
    assert [shape.back for shape in snapshot.state.shapes.frames] == [-1, 0, 1]
    state = snapshot.state
    assert state.stack == tuple([(shape.info, shape.ip) for shape in state.shapes.frames]) and state.chain == state.stack[::-1]
    assert [shape.info.code.co_name for shape in state.called_frames()] == ["called", "frames"]
    interp = interpreter()
    restore(state, interp, tuple(snapshot.roots))
    assert interp.frame.info is state.shapes.frames[2].info and interp.frame.back.back.back is None
    assert interp.limits.depth == state.resumption.depth


@pytest.mark.parametrize(
    ("fn", "passing", "answer"),
    [(variables_and_stack, 0, False), (handled, 0, True), (handled, 1, False), (blocks, 0, True), (in_a_generator, 0, True), (frames, 0, False)],
    ids=["plain", "except and finally", "in the finally", "with", "generator", "calls"],
)
def test_whether_an_exception_would_be_handled(fn: Callable, passing: int, answer: bool) -> None:
    assert snapshot_at_break(fn, [3, 4], passing=passing).state.has_handlers is answer


def test_the_exception_that_is_being_handled_is_alive() -> None:
    snapshot = snapshot_at_break(handled, [3])
    assert type(snapshot.roots[snapshot.state.resumption.handled.number]) is ValueError
    interp, other = interpreter(), ValueError("other")
    restore(snapshot.state, interp, tuple([other if type(v) is ValueError else v for v in snapshot.roots]))
    assert interp.exceptions.handled is other


def test_where_the_result_goes_is_kept() -> None:
    snapshot = snapshot_at_break(variables_and_stack, [3])
    assert snapshot.state.resumption.then is None
    init = snapshot_at_break(lambda n: Thing(n), [3]).state.called_frames()[0]
    assert init.info.code is Thing.__init__.__code__ and callable(init.then.function)


# -- same: one continuation for both? ---------------------------------------------------------------------------------------------
def each(n: list) -> Any:
    found = []
    for x in n:
        found.append(stop(x))
    return found


@pytest.mark.parametrize(
    ("fn", "one", "other", "answer"),
    [
        (variables_and_stack, ([3], 0), ([3, 9], 0), True),
        (variables_and_stack, ([3], 0), ([4], 0), False),
        (each, ([3, 4], 0), ([7], 0), True),
        (each, ([3, 4], 0), ([3, 4], 1), True),
        (loop_over_range, ([3], 0), ([3], 1), False),
        (frames, ([3], 0), ([3], 1), False),
        (handled, ([3], 0), ([3], 0), True),
    ],
    ids=["other live values", "another constant", "another list", "another item", "another number", "another call", "again"],
)
def test_same(fn: Callable, one: tuple, other: tuple, answer: bool) -> None:
    one_state, other_state = [snapshot_at_break(fn, n, passing=passing).state for n, passing in (one, other)]
    assert one_state.same(other_state) is other_state.same(one_state) is answer


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (Root(1), Root(1), True),
        (Root(1), Root(2), False),
        (Root(1), Carried(1), False),
        (Const(1), Const(True), False),
        (Const(0.0), Const(-0.0), False),
        (Const(float("nan")), Const(float("nan")), True),
        (Made(tuple, (Root(0), Const("a"))), Made(tuple, (Root(0), Const("a"))), True),
        (Made(tuple, (Root(0),)), Made(list, (Root(0),)), False),
        ({"a": Root(0)}, {"a": Root(0)}, True),
        ({"a": Root(0)}, {"b": Root(0)}, False),
        ([Root(0)], [Root(0), Root(1)], False),
    ],
)
def test_alike(a: Any, b: Any, answer: bool) -> None:
    assert alike(a, b) is answer


def test_roots_of_a_part() -> None:
    part = Made(tuple, (Root(4), Const(Root(9)), Made(list, (Root(2), Object(1), Reduced(3))), GeneratorRef(5)))
    assert list(roots_of(part)) == [4, 2]


# -- iterators -----------------------------------------------------------------------------------------------------------------------
def iterating(make: Callable[[list], Any]) -> Callable:
    def program(n: list) -> Any:
        it = make(n)
        next(it, None)
        return stop(), it

    return program


# Where itertools cannot be reduced, as from Python 3.14 on, all of it is in Python.
REDUCES = "__reduce__" in vars(itertools.cycle)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda n: iter(n), Carried), (lambda n: iter({"a": n, "b": 1}.items()), Carried), (lambda n: enumerate(n), Carried),
        (lambda n: zip(n, (1, 2)), Carried), (lambda n: itertools.islice(n, 2), Carried if REDUCES else Object), (lambda n: iter(range(3)), Reduced),
        (lambda n: itertools.accumulate(n), Object), (lambda n: itertools.cycle(n), Reduced if REDUCES else Object), (lambda n: iter(deque(n)), Root),
    ],
    ids=["list", "dict items", "enumerate", "zip", "islice", "range", "in Python", "cycle", "deque"],
)  # fmt: skip
def test_how_an_iterator_is_kept(make: Callable, kind: type) -> None:
    snapshot = snapshot_at_break(iterating(make), [3, 4])
    assert type(variables(snapshot)["it"]) is kind
    snapshot.pass_on()
    given, it = go_on(snapshot, tuple(snapshot.roots))
    other = make([3, 4])
    next(other)
    assert given == 5 and list(itertools.islice(it, 4)) == list(itertools.islice(other, 4))


def test_an_iterator_is_made_once_for_all_that_hold_it() -> None:
    def program(n: list) -> Any:
        a = b = iter(range(n[0], 9))
        return stop(), a is b, next(a), next(b)

    snapshot = snapshot_at_break(program, [3, 4])
    assert variables(snapshot) == {"a": Reduced(0), "b": Reduced(0)} and len(snapshot.state.shapes.iterators) == 1
    snapshot.pass_on()
    assert go_on(snapshot, tuple(snapshot.roots)) == (5, True, 3, 4)


def test_what_an_iterator_goes_through_is_told() -> None:
    def program(n: dict) -> Any:
        it = iter(n)
        n["a"] = next(it)
        return stop(), it

    snapshot = snapshot_at_break(program, {"a": 1, "b": 2})
    _, containers, _ = restore(snapshot.state, interpreter(), tuple(snapshot.roots))
    assert containers == [{"a": "a", "b": 2}] and containers[0] is snapshot.roots[0] and type(variables(snapshot)["it"]) is Reduced


def test_what_something_else_holds_stays_what_it_is() -> None:
    """Who writes the program has found that it makes the iterator for somebody else too."""
    it = iter(range(3))
    interp = interpreter()
    interp.frame = f = interp.push_function(None, iterating(lambda n: n), [None], None)
    f.local[f.info.slots.index("it")] = it
    f.ip = next(n for n, (name, _) in enumerate(f.info.instructions) if name == "CALL" and "it" in [f.info.slots[i] for i in f.info.live_after(n + 1)]) + 1
    graph_break = GraphBreak(stop, (), None, "FL400", "why")
    assert variables(take_snapshot(interp, graph_break), 0)["it"] == Reduced(0)
    assert variables(take_snapshot(interp, graph_break, held=AddressSet((it,))), 0)["it"] == Root(0)
    assert variables(take_snapshot(interp, GraphBreak(stop, (it,), None, "FL400", "why")), 0)["it"] == Root(0)


# -- numbers that tell the iterations of a loop apart ---------------------------------------------------------------------------------
def test_numbers_of_an_iteration_are_alive() -> None:
    def program(n: list) -> Any:
        step = 7
        for i in range(3):
            stop(i)
            step += 5
        return step

    plain = snapshot_at_break(program, [3], passing=1)
    assert variables(plain)["step"] == Const(12)
    step = Number("local", 1, plain.state.shapes.frames[1].info.slots.index("step"))
    at = Number("at", 0, 0)
    snapshot = snapshot_at_break(program, [3], passing=1, loop_numbers={plain.state.chain: frozenset({step, at})})
    assert snapshot.state.numbers[:2] == ({step, at}, ("step", "program_value")) and [*live(snapshot).values()] == [12, 2]
    assert plain.state.numbers.lone == {0}  # nothing but the loop holds the iterator
    assert [go_on(snapshot, values) for values in ((12, 2), (100, 2), (100, 1), (1, 3))] == [22, 110, 115, 6]
    assert not snapshot.state.same(plain.state)
    assert snapshot_at_break(program, [3], passing=1, loop_numbers={}).state.numbers.places == frozenset()


# -- what no state can hold -------------------------------------------------------------------------------------------------------
def test_a_generator_from_before_the_call_is_a_value() -> None:
    gen = (x for x in (1, 2))
    snapshot = snapshot_at_break(lambda g: [stop(), g], gen)
    assert live(snapshot) == {"g": gen}


def refused(fn: Callable, *args: Any) -> str:
    """Why there is no state at the break in ``fn``."""
    interp = interpreter()

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        try:
            raise Finished(take_snapshot(interp, graph_break))
        except NotReconstructible as e:
            raise Finished(e.text) from None

    interp.host = Host(on_graph_break)
    interp.frame = entry_frame(interp, fn, args, {})
    with pytest.raises(Finished) as caught:
        interp.run()
    return caught.value.value


def giving_next(n: list) -> Any:
    held: list = []
    held.append(filter(lambda x: stop(held[0]), n))
    return next(held[0])


def given_away(n: list) -> Any:
    gen = counting(n)
    next(gen)
    return stop(), next(gen)


@pytest.mark.parametrize(
    ("fn", "passing", "text"),
    [(giving_next, 0, "an iterator that is giving its next item"), (given_away, 1, "a generator that eager code has been given")],
    ids=["iterator giving its next item", "generator given away"],
)
def test_what_no_state_can_hold(fn: Callable, passing: int, text: str) -> None:
    interp, eager, refused = interpreter(), [], []

    def on_graph_break(interp: Interpreter, graph_break: GraphBreak) -> Any:
        if passing == len(refused):
            for gen in [ref() for ref in interp.stand_ins.refs if type(ref()) is InterpretedGenerator]:
                eager.append(real_generator(gen))
                gen.given = weakref.ref(eager[0])
        try:
            take_snapshot(interp, graph_break)
            refused.append("")
        except NotReconstructible as e:
            refused.append(e.text)
        if refused[-1]:
            raise Finished(None)
        return interp.beyond(graph_break)

    interp.host = Host(on_graph_break)
    interp.frame = entry_frame(interp, fn, ([3],), {})
    with pytest.raises(Finished):
        interp.run()
    assert refused[passing] == text
