"""Generators that go before they are through: what their ``finally`` and ``with`` do, and when."""

from __future__ import annotations

import contextlib
import copy
import functools
import itertools
import math
import operator
import sys
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


def gen(log, n, name="g"):
    log.append(name + "+")
    try:
        for i in range(n):
            yield i
    finally:
        log.append(name + "-")


@table.program()
def generator_left_by_break() -> Any:
    log: list[Any] = []

    def fn(x):
        for i in gen(log, 3):
            x = x * 2
            break
        log.append("after loop")
        n = len(log)
        r = list(log)
        log.clear()
        return x + n, r

    return fn, log


@table.program(recompiles=(1,))  # the log is no longer empty then
def generator_dies_everywhere() -> Any:
    log: list[Any] = []

    def take(g):
        log.append("take")
        return next(g)

    def made():
        g = gen(log, 3, "made")
        h = gen(log, 3, "second")
        next(h)
        next(g)
        log.append("made ends")
        return 1

    def fn(x):
        y = take(gen(log, 3, "arg"))
        log.append("after take")
        made()
        log.append("after made")
        g = gen(log, 3, "name")
        next(g)
        g = None
        log.append("after name")
        g = gen(log, 3, "del")
        next(g)
        del g
        log.append("after del")
        d = {"a": gen(log, 3, "dict")}
        next(d["a"])
        d["a"] = 1
        log.append("after dict")
        l = [gen(log, 3, "list")]
        next(l[0])
        l.pop()
        log.append("after list")
        a, *_ = next(gen(log, 3, "temp")), 1
        log.append("after temp")
        z = zip(gen(log, 3, "zip"), [1])
        next(z)
        del z
        log.append("after zip")
        e = enumerate(gen(log, 4, "enum"))
        for i, j in e:
            break
        e = 0
        log.append("after enum")
        it = itertools.islice(gen(log, 4, "slice"), 2)
        list(it)
        del it
        log.append("after islice")
        any(k for k in gen(log, 4, "any"))
        log.append("after any")
        (x,) = (q for q in [x])

        class O:
            pass

        o = O()
        o.g = gen(log, 3, "attr")
        next(o.g)
        del o
        log.append("after attr")
        o = gen(log, 3, "return")
        next(o)
        other = gen([], 3)
        next(other)
        return x * y + x, list(log), log.clear()

    return fn, log


@table.program()
def generator_dies_with_exception() -> Any:
    log: list[Any] = []

    def inner():
        g = gen(log, 3, "inner")
        next(g)
        raise ValueError("x")

    def fn(x):
        try:
            inner()
        except ValueError as e:
            log.append("handler")
        log.append("after")
        try:
            for i in gen(log, 4, "loop"):
                raise KeyError(i)
        except KeyError:
            log.append("handler2")
        log.append("after2")
        try:
            try:
                inner()
            finally:
                log.append("finally")
        except ValueError:
            log.append("handler3")
        log.append("after3")
        try:
            inner()
        except ValueError as e:
            kept = e
        log.append("kept")
        del kept
        log.append("dropped")
        return x * 2, list(log), log.clear()

    return fn, log


@table.program()
def generator_with_with_dies() -> Any:
    log: list[Any] = []

    @contextlib.contextmanager
    def scope(n):
        log.append("+" + n)
        try:
            yield n
        finally:
            log.append("-" + n)

    def g(x):
        with scope("a"), torch.no_grad():
            yield x * 2
            yield x * 3

    def outer(x):
        try:
            yield from g(x)
        finally:
            log.append("outer")

    def fn(x):
        for y in outer(x):
            break
        log.append(torch.is_grad_enabled())
        for z in g(x):
            log.append(torch.is_grad_enabled())
            if len(log) > 3:
                break
        log.append(torch.is_grad_enabled())
        return y + z * 2, list(log), log.clear()

    return fn, log


@table.program(recompiles=(1,), breaks=True)
def generator_dies_behind_a_break() -> Any:
    log: list[Any] = []

    def fn(x):
        g = gen(log, 3, "g")
        n = next(g)
        x = x * 2
        fineline.graph_break()
        log.append("behind")
        x = x * 3
        return x, list(log), n, log.clear()

    return fn, log


@table.program(breaks=True)
def generator_close_graph() -> Any:
    def g(x, box):
        try:
            yield x
        finally:
            box.append(x * 5)

    def fn(x):
        box = []
        for y in g(x, box):
            break
        return box[0] + y

    return fn


def iterators_for_c(kind: str) -> None:
    """Iterators in Python, of what is another thing at each call, that C code walks."""

    def make() -> Any:
        state = {"n": 1}

        class Stepping:
            def __init__(self):
                self.left = 3

            def __iter__(self):
                return self

            def __next__(self):
                if not self.left:
                    raise StopIteration
                self.left -= 1
                return self.left + state["n"]

        class Sequence:
            def __getitem__(self, i):
                if i > 2:
                    raise IndexError
                return i + state["n"]

        made = {"steps": Stepping, "sequence": Sequence, "mapped": lambda: map(lambda n: n + state["n"], range(3))}[kind]

        def fn(x):
            numbers = sum(made()), min(made()), sorted(made()), math.prod(made()), math.fsum(made()), operator.countOf(made(), 2), bytes(made())
            return x * sum(map(lambda n: n * x, made())), numbers, ",".join(map(str, made())), any(made()), 2 in made()

        return fn, state

    make.__name__ = f"c_walks_{kind}"
    table.program(calls=4, change={p: lambda state, p=p: state.update(n=(1, 2, 5, 1)[p]) for p in range(4)}, recompiles=(1, 2))(make)


for _kind in ("steps", "sequence", "mapped"):
    iterators_for_c(_kind)


@table.snippet(recompiles=(1,))  # behind a break the iterator is a chain
def pairs_of_neighbours(x):
    cuts = [0, 1, *range(2, x.shape[0]), x.shape[0]]
    return [x[i:j].sum() for i, j in itertools.pairwise(cuts)], list(itertools.pairwise(cuts[1:]))


@table.program(calls=3, change={p: lambda state, p=p: state.update(n=(1, 2, 3)[p]) for p in range(3)}, recompiles=(1, 2))
def what_c_calls_with_each_item():
    state = {"n": 1}
    order = [2, 4, 3]

    class Key:
        def __init__(self, i):
            self.i = i * state["n"] % 5

        def __lt__(self, other):
            return self.i < other.i

    class Called:
        def __call__(self, i):
            return (i + 1) * state["n"] % 5

    def fn(x):
        order[0] = state["n"]
        by_number = sorted(range(4), key=lambda i: i * state["n"] % 5)
        numbers = [0, 1, 2, 3]
        numbers.sort(key=Called(), reverse=True)
        least, most = min(range(4), key=Called()), max(1, 2, 3, key=Called().__call__)
        compared = sorted([2, 1, 3], key=functools.cmp_to_key(lambda a, b: (a - b) * (-1) ** state["n"]))
        return x + least, by_number, numbers, most, compared, sorted(range(4), key=Key), min([3, -2], key=abs), sorted(range(3), key=order.__getitem__)

    return fn, state


def test_an_exception_that_nobody_can_catch_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    # From CPython 3.14 on, the generator is told only in the message.
    monkeypatch.setattr(sys, "unraisablehook", lambda u: told.append((u.exc_type, str(u.exc_value), (u.err_msg or repr(u.object)).partition(" at 0x")[0])))

    def g(x):
        try:
            yield x
        finally:
            raise KeyError("unseen")

    def fn(x):
        for y in g(x):
            break
        return y * 2

    compiled = fineline.compile(fn, backend="eager")
    for call in (fn, compiled, compiled):
        call(t())
    assert len(told) == 3 and told[0] == told[1] == told[2]


@table.snippet()
def throwing_into_new_and_closed_generators(x):
    def gen():
        yield x * 2

    found = [x + 1]
    for kind in (StopIteration, ValueError, GeneratorExit):
        new, closed = gen(), gen()
        closed.close()
        for g in (new, new, closed):
            try:
                g.throw(kind(3))
            except BaseException as e:
                found.append((repr(e), repr(e.__cause__), repr(e.__context__)))
    return found


@table.snippet()
def what_is_read_of_a_replaced_stop_iteration(x):
    def gen():
        raise StopIteration(3)
        yield

    found = []
    try:
        next(gen())
    except RuntimeError as error:
        found += [error.args, getattr(error, "__notes__", None), vars(error), repr(error.__cause__), error.__context__ is error.__cause__]
    return x + 1, found


@table.snippet()
def what_close_returns(x):
    def gen(kind):
        try:
            yield x
        except kind:
            return x * 2

    begun, other, held = gen(GeneratorExit), gen(ValueError), gen(GeneratorExit)
    found = [next(begun), begun.close(), begun.close(), gen(GeneratorExit).close()]
    return found, next(other), other.close(), next(held), [held.close() for _ in range(2)], list(held)


@table.program(breaks=True, recompiles=(1,))
def what_close_returns_behind_a_break():
    def gen(x, log):
        try:
            while True:
                try:
                    yield x
                except GeneratorExit:
                    log.append("exit")
                    if len(log) % 2:
                        yield x + 1
                    return x * 2
        finally:
            log.append("end")

    def outer(x, log):
        found = yield from gen(x, log)
        yield found + 1

    def fn(x):
        log, found = [], []
        generators = [gen(x, log), gen(x + 1, log), outer(x, log), gen(x, log)]
        for g in generators:
            next(g)
        fineline.graph_break()
        for g in generators:
            for end in (g.close, lambda g=g: g.throw(GeneratorExit(3))):
                try:
                    found.append(end())
                except BaseException as e:
                    found.append(repr(e))
        return found, log, generators.pop(), generators[2].close()

    return fn


@table.snippet()
def what_is_handled_where_it_goes_on(x):
    """The exception thrown in is the one being handled outside as well; later, none is."""
    told = []

    def gen():
        try:
            told.append(sys.exc_info()[0])
            yield x
        except ValueError as e:
            told.append((sys.exc_info()[0], e.__context__))
            yield
            told.append(sys.exc_info()[0])
            yield
            raise

    g = gen()
    next(g)
    try:
        raise ValueError("kept")
    except ValueError as e:
        g.throw(e)
    next(g)
    try:
        next(g)
    except ValueError as e:
        told.append(str(e))
    return x + 1, told


@table.snippet()
def handled_outside_at_one_time_and_not_at_another(x):
    told = []

    def gen():
        for _ in range(3):
            told.append(repr(sys.exc_info()[1]))
            try:
                raise KeyError("inside")
            except KeyError as e:
                told.append(repr(e.__context__))
            told.append(repr(sys.exc_info()[1]))
            yield

    g = gen()
    next(g)
    try:
        raise ValueError("outside")
    except ValueError:
        next(g)
    next(g)
    return x + 1, told


@table.snippet(breaks=True, recompiles=(1,))
def asked_of_a_generator(x):
    told = []

    def gen():
        told.append(g.gi_running)
        yield 1

    g = gen()
    told.append((g.gi_running, g.gi_suspended))
    next(g)
    told.append((g.gi_running, g.gi_suspended))
    for how in (copy.copy, copy.deepcopy):
        try:
            how(g)
        except TypeError as e:
            told.append(str(e))
    return x + 1, told


@table.snippet()
def iterators_that_come_back_to_themselves(x):
    class Source:
        def __init__(self):
            self.count = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.count += 1
            return next(self.pairs) if self.count == 1 else self.count

    class Endless:
        def __iter__(self):
            return self

        def __next__(self):
            return next(self.other)

    def ends():
        if not told:
            told.append("ended")
            list(called)
            return 1
        return 2

    told, source, endless = [], Source(), Endless()
    called = iter(ends, 2)
    source.pairs = itertools.pairwise(source)
    found = [next(source.pairs) for _ in range(3)]
    one, endless.other = itertools.tee(endless)
    for it in (one, called):
        try:
            told.append(next(it))
        except (RuntimeError, StopIteration) as e:
            told.append(repr(e))
    return x + 1, found, told


@table.snippet()
def what_the_end_of_a_generator_says(x):
    def plain():
        yield x

    def valued():
        yield x
        return 3

    told = []
    for it in (plain(), valued()):
        next(it)
        try:
            next(it)
        except StopIteration as e:
            told.append((e.args, str(e), e.value))
    return x + 1, told


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_generators(program: Program, twin: str) -> None:
    check(program, twin)
