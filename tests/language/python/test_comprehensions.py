"""Comprehensions, generator expressions and generators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet()
def list_comprehension(x, y):
    return [x * i + y for i in range(3)]


@table.snippet()
def nested_comprehension(x, y):
    return [[a + i * b for i in range(2) if i or True] for a, b in zip(x, y)]


@table.snippet(grad=True)
def filtered_comprehension(x):
    return torch.stack([x[i] * j for i in range(3) for j in range(3) if i != j if (i + j) % 2])


@table.snippet()
def dict_comprehension(x):
    scaled = {f"k{i}": x * i for i in range(3)}
    return {key.upper(): value.sum() for key, value in scaled.items() if key != "k1"}


@table.snippet()
def dict_comprehension_overwrites(x):
    return {i % 2: x + i for i in range(4)}


@table.snippet()
def set_comprehension(x):
    shapes = {len(row.shape) for row in x} | {n % 3 for n in range(7)}
    return x * len(shapes), shapes


@table.snippet()
def generator_expression_in_sum(x):
    return sum(x[i] * i for i in range(3))


@table.snippet()
def comprehension_with_closure(x):
    factor = 3.0
    fs = [lambda v, i=i: v * i + factor for i in range(3)]
    factor = 2.0
    return [f(x) for f in fs]


@table.snippet()
def comprehension_late_binding(x):
    fs = [lambda v: v * i for i in range(3)]
    return [f(x) for f in fs]


@table.snippet()
def comprehension_walrus(x):
    kept = [last := x * i for i in range(3) if (square := i * i) != 1]
    return kept, last, square


@table.snippet()
def comprehension_scope_is_its_own(x):
    i = 7
    values = [x + i for i in range(2)]
    return values, x * i


@table.snippet()
def comprehension_raises_inside(x):
    try:
        return [x / (1 if i < 2 else [][i]) for i in range(4)]
    except IndexError as error:
        return x - 1, str(error)


@table.snippet()
def star_unpacking_of_generators(x):
    return [*(x + i for i in range(2)), *[x], *(i for i in "ab")], {**{k: x * 2 for k in "pq"}, "r": x}


@table.snippet()
def generator_function(x):
    def numbers(n):
        for i in range(n):
            yield x * i

    return list(numbers(3)), tuple(numbers(2))


@table.snippet()
def generator_send(x):
    def running():
        total = torch.zeros_like(x)
        while True:
            got = yield total
            if got is None:
                return
            total = total + got

    g = running()
    first = next(g)
    parts = [g.send(x * k) for k in (1, 2, 3)]
    try:
        g.send(None)
    except StopIteration as stop:
        return first, parts, stop.value
    return None


@table.snippet()
def generator_return_value(x):
    def inner():
        yield x
        yield x + 1
        return x * 10

    def outer():
        result = yield from inner()
        yield result - 1
        return "done"

    def outermost():
        end = yield from outer()
        yield end

    return list(outermost())


@table.snippet()
def yield_from_send_and_throw(x):
    def inner():
        got = x
        while True:
            try:
                got = (yield got * 2) + 1
            except KeyError as error:
                got = x - len(error.args[0])

    def outer():
        yield from inner()

    g = outer()
    return next(g), g.send(x), g.throw(KeyError("abc")), g.send(x * 3)


@table.snippet()
def generator_throw_handled(x):
    log = []

    def worker():
        try:
            yield x
        except ValueError as error:
            log.append(str(error))
            yield x * 5
        finally:
            log.append("finally")

    g = worker()
    a = next(g)
    b = g.throw(ValueError("stop it"))
    rest = list(g)
    return a, b, rest, log


@table.snippet()
def generator_throw_unhandled(x):
    def worker():
        yield x
        yield x + 1

    g = worker()
    y = next(g) * 2
    try:
        g.throw(LookupError("gone"))
    except LookupError as error:
        return y, repr(error), list(g)
    return None


@table.snippet()
def generator_close_runs_finally(x):
    log = []

    def worker():
        try:
            yield x
            yield x * 2
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("finally")

    g = worker()
    y = next(g) + 1
    g.close()
    g.close()
    return y, log, next(g, "empty")


@table.snippet()
def generator_abandoned_half_way(x):
    def worker():
        for i in range(100):
            yield x + i

    g = worker()
    for value in g:
        if value.dim() == 2:
            break
    return value, next(g)


@table.snippet()
def generator_stop_iteration_inside(x):
    def broken():
        yield x
        raise StopIteration("inner")

    out = []
    try:
        for value in broken():
            out.append(value * 3)
    except RuntimeError as error:
        return out, str(error), type(error.__cause__).__name__
    return None


@table.snippet()
def generator_pipeline(x):
    def source():
        yield from (x[i] for i in range(3))

    def doubled(values):
        for value in values:
            yield value * 2

    def pairs(values):
        last = None
        for value in values:
            if last is not None:
                yield last + value
            last = value

    return torch.stack(list(pairs(doubled(source()))))


@table.snippet()
def generator_consumed_by_builtins(x):
    def rows():
        for row in x:
            yield row

    return max(len(row) for row in rows()), torch.cat([*rows()]), dict(enumerate(rows())), [a + b for a, b in zip(rows(), rows())]


@table.snippet()
def interleaved_generators(x):
    def count(step):
        n = 0
        while True:
            yield x * n
            n += step

    a, b = count(1), count(2)
    return [next(a), next(b), next(a), next(b), next(a)]


@table.program()
def generator_kept_between_calls() -> Any:
    def numbers():
        n = 1
        while True:
            yield n
            n += 1

    g = numbers()

    def fn(x):
        return x * 2, x + 1

    def fn_with(x):
        a, b = fn(x)
        return a, b, g.gi_frame is not None

    return fn_with, g


@table.program(recompiles=(1, 2), breaks=True, min_graphs=0)
def generator_from_outside_is_advanced() -> Any:
    g = (i for i in range(10))

    def fn(x):
        return x * next(g)

    return fn, g


@table.snippet(args=lambda i: ([t(i), t(i + 1)], [2, 3, 2][i]), recompiles=(1, 2))
def comprehension_over_arguments(xs, n):
    return [x * k for x in xs for k in range(n)]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_comprehensions(program: Program, twin: str) -> None:
    check(program, twin)
