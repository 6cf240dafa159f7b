"""Loops, branches, conditional expressions, walrus, early returns, del, deep nesting."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


@table.snippet()
def for_else(x):
    out = []
    for limit in (2, 9):
        for i in range(5):
            if i == limit:
                break
            x = x + i
        else:
            out.append(f"no break at {limit}")
    return x, out, i


@table.snippet()
def while_else(x):
    n = 0
    while n < 3:
        n += 1
        if n == 10:
            break
    else:
        x = x * n
    while True:
        n -= 1
        if n < 0:
            break
        if n % 2:
            continue
        x = x - n
    else:
        x = x * 1000
    return x, n


@table.snippet()
def loop_over_nothing(x):
    for i in []:
        x = x * 100
    else:
        x = x + 1
    try:
        return x, i
    except UnboundLocalError:
        return x * 2


@table.snippet()
def nested_loops_with_labels(x):
    found = None
    for i in range(5):
        for j in range(5):
            if i * j == 6:
                found = (i, j)
                break
        if found:
            break
    return x * found[0] + found[1]


@table.snippet()
def loop_targets(x):
    box, ns = [0], {}
    for box[0] in range(3):
        pass
    for ns["k"], (a, *b) in [(1, (2, 3)), (4, (5, 6, 7))]:
        x = x + a
    return x, box, ns, b


@table.snippet()
def conditional_expressions(x):
    n = x.dim()
    return x * (1 if n == 3 else 2 if n == 2 else 3), [i if i % 2 else -i for i in range(4)], (lambda v: v if v else "zero")(0)


@table.snippet()
def short_circuits(x):
    log = []

    def note(v):
        log.append(v)
        return v

    a = note(0) or note("") or note("last")
    b = note(1) and note(2) and note(0) and note(3)
    c = not (note(5) or note(6))
    return x + len(log), a, b, c, log


@table.snippet()
def walrus(x):
    values = [1, 5, 2, 8]
    if (n := len(values)) > 3 and (y := x * n) is not None:
        x = y + n
    while (v := values.pop()) != 1:
        x = x + v
    return x, n, v


@table.snippet(args=lambda i: (t(i), [0, 1, 5, 0][i]), calls=4, recompiles=(1, 2))
def early_returns(x, mode):
    if mode == 0:
        return x - 1
    y = x * 2
    if mode == 1:
        return y, mode
    for i in range(10):
        y = y + i
        if i == mode:
            return [y]
    return None


@table.snippet(args=lambda i: (t(i), [True, False, True][i]), recompiles=(1,))
def flag_argument(x, training):
    if training:
        return x * 2
    else:
        return x.relu()


@table.snippet()
def shape_branches(x):
    b, c = x.shape
    if b > c:
        x = x.T
    elif b * c == 12 and x.is_contiguous() and x.dtype == torch.float32:
        x = x.reshape(c, b)
    assert x.shape == (c, b)
    return x * (b / c), x.size(0) if x.ndim else None


@table.snippet()
def del_of_many_kinds(x):
    d, a = {"k": 1, "l": 2}, [1, 2, 3, 4]
    y = x * 2

    class C:
        v = 1

    c = C()
    c.w = 2
    del d["k"], a[0], a[1:], c.w, y
    del (d["l"]), C.v
    return x + 1, d, a, vars(c), hasattr(C, "v")


@table.snippet()
def long_straight_line(x):
    for i in range(60):
        x = x + i if i % 3 else x * 1.01
    return x


@table.snippet()
def deep_nesting(x):
    for i in range(2):
        if i or True:
            with torch.no_grad():
                try:
                    while True:
                        for j in [i]:
                            if j == i:
                                x = (lambda v: [w * 2 for w in [v]][0])(x)
                        break
                finally:
                    x = x + 1
    return x


@table.snippet()
def pass_and_expressions(x):
    x + 1
    "a string"
    ...
    None
    pass
    y: Any = x * 2
    z: int
    return y


@table.snippet()
def multiple_results(x):
    def f():
        return 1, x, {"k": x * 2}

    a, b, c = f()
    return a, *[b, c["k"]], *(), f()[0]


@table.snippet(min_graphs=0)
def nothing_to_capture(x):
    return [len(x), x.shape, x]


@table.snippet(min_graphs=0)
def returns_nothing(x):
    x.shape


@table.snippet()
def result_unused(x):
    x.sin()
    torch.relu(x)
    return x.cos()


@table.snippet()
def python_heavy_loop(x):
    total = 0
    for i in range(300):
        total += (i * i) % 7 if i % 2 else -i
    return x * total, total


@table.snippet()
def fizz_buzz(x):
    out = []
    for i in range(1, 16):
        match (i % 3, i % 5):
            case (0, 0):
                out.append("fizzbuzz")
            case (0, _):
                out.append("fizz")
            case (_, 0):
                out.append("buzz")
            case _:
                out.append(i)
    return x * len(out), out


@table.snippet()
def iterators_by_hand(x):
    it = iter(x)
    first = next(it)
    rest = [r * 2 for r in it]
    try:
        next(it)
    except StopIteration as stop:
        return first, rest, stop.args, next(iter([]), "default")


@table.snippet()
def state_machine(x):
    state, log = "start", []
    while state != "end":
        log.append(state)
        if state == "start":
            x, state = x + 1, "middle"
        elif state == "middle":
            x = x * 2
            state = "middle" if len(log) < 4 else "last"
        else:
            state = "end"
    return x, log


@table.snippet()
def async_function_defined_inside(x):
    async def later(v):
        return v * 2

    coroutine = later(x)
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value + 1


@table.program(min_graphs=0)
def generator_as_the_outermost() -> Any:
    def values(x):
        for k in range(3):
            yield x * k

    return lambda x: list(values(x)), values


@table.program(change={2: lambda s: s.append(0)}, recompiles=(2,))
def loop_over_outside_numbers() -> Any:
    numbers = [1, 2, 3]

    def fn(x):
        for n in numbers:
            if n == 2:
                continue
            x = x + n
        else:
            x = x * 2
        return x

    return fn, numbers


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_control_flow(program: Program, twin: str) -> None:
    check(program, twin)
