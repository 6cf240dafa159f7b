"""Values alive at a graph break: containers, closures, iterators, exceptions and writes go across it as they are."""

from __future__ import annotations

import collections
import functools
import itertools
from typing import Any

import pytest
import torch

import fineline
from fineline import graph_break
from tests.oracle import Program, Table, check, t

table = Table()


# -- what is alive at a border ---------------------------------------------------------------------------------------
@table.snippet(breaks=True)
def containers_alive(x):
    items, pairs, seen, row = [x, 1], {"a": x * 2, 3: [x]}, {1, 2}, collections.deque([x, 5], maxlen=3)
    table_ = collections.defaultdict(list)
    table_["k"].append(x)
    order = collections.OrderedDict(b=1, a=x)
    graph_break()
    items.append(x + 1)
    pairs["b"] = items
    pairs[3].append(pairs)
    seen.add(3)
    row.append(7)
    row.append(8)
    table_["new"].append(1)
    order.move_to_end("b")
    return items, pairs["a"] + 1, pairs, seen, row, table_, order


@table.snippet(breaks=True)
def identity_kept(x):
    shared = [x]
    a, b = {"s": shared}, (shared, shared)
    graph_break()
    shared.append(x * 2)
    return a["s"] is b[0], a, b, shared


@table.snippet(breaks=True)
def closures_alive(x):
    count = 0

    def bump(k=2):
        nonlocal count
        count += k
        return x * count

    y = bump()
    graph_break()
    z = bump(5)
    count *= 2
    graph_break()
    return y, z, bump(), count, bump


class Node:
    __slots__ = ("next", "value")

    def __init__(self, value):
        self.value, self.next = value, None


@table.snippet(breaks=True)
def objects_alive(x):
    a, b = Node(x), Node(x * 2)
    a.next, b.next = b, a
    method = functools.partial(torch.add, x, alpha=2)
    graph_break()
    a.next.value = b.value + 1
    del b.next
    return a, method(x), hasattr(b, "next")


@table.snippet(breaks=True)
def iterators_alive(x):
    d = {"a": 1, "b": 2, "c": 3}
    i, e, z = iter([1, 2, 3]), enumerate([x, x * 2], 5), zip(d, d.values(), range(9))
    v, c, m = iter(d.items()), itertools.chain([1], [2]), itertools.cycle("ab")
    first = (next(i), next(e), next(z), next(v), next(c), next(m))
    graph_break()
    return first, list(i), list(e), list(z), list(v), list(c), next(m), next(m)


@table.snippet(breaks=True)
def loops_over_views(x):
    d, total = {"a": 1, "b": 2}, x
    for k, (name, n) in enumerate(d.items()):
        total = total * n + k
        graph_break()
    for name, n in zip(reversed(d), d.values()):
        graph_break()
        total = total + n
    return total


@table.snippet(breaks=True)
def lazy_map_alive(x):
    m = map(lambda v: v * 2, [x, x + 1, x + 2])
    f = filter(None, [0, 1, 2])
    first = next(m)
    graph_break()
    return first, next(m), list(m), next(f)


@table.snippet(breaks=True)
def exception_alive(x):
    kept = None
    try:
        raise ValueError("kept", 3)
    except ValueError as error:
        kept = error
        kept.note = x
    graph_break()
    try:
        raise TypeError("new") from kept
    except TypeError as error:
        return x * 2, error, error.__cause__ is kept, kept


@table.snippet(breaks=True)
def unbound_and_deleted(x):
    y = x * 2
    del x
    graph_break()
    try:
        return x
    except UnboundLocalError as error:
        return y + 1, type(error).__name__


@table.snippet(breaks=True)
def types_and_modules_alive(x):
    layer, kind, size, device = torch.nn.ReLU(), torch.float64, x.shape, x.device
    s, text = slice(0, 2), "text"
    graph_break()
    return layer(x).to(kind), size, x.to(device)[s], text


@table.snippet(breaks=True, grad=True)
def views_across_a_border(x):
    y = x * 1
    row = y[0]
    graph_break()
    row.mul_(2)
    return y, row


# -- writes and borders ----------------------------------------------------------------------------------------------
@table.program(breaks=True, recompiles=(1, 2))
def writes_before_are_seen() -> Any:
    state = {"n": 0, "log": []}

    def look():
        return state["n"], len(state["log"])

    def fn(x):
        state["n"] += 1
        state["log"].append(state["n"])
        x.add_(1)
        seen = fineline.disable(look)()
        state["log"].append(seen)
        return x * 2

    return fn, state


@table.program(breaks=True, calls=4)
def border_call_writes() -> Any:
    state = {"scale": 1.0, "calls": 0}

    @fineline.disable
    def change():
        state["scale"] = 2.0
        state["new"] = "yes"
        state["calls"] += 1

    def fn(x):
        state["scale"] = 1.0
        y = x * state["scale"]
        change()
        return y, x * state["scale"], state["new"]

    return fn, state


@table.program(breaks=True, calls=4, recompiles=(2,))
def border_call_raises_sometimes() -> Any:
    calls = []

    @fineline.disable
    def risky(x):
        calls.append(1)
        if len(calls) == 3:
            raise ValueError(f"call {len(calls)}")
        return x + 1

    def fn(x):
        y = x * 2
        try:
            z = risky(y)
        except ValueError as error:
            return y - 1, str(error)
        finally:
            calls.append(0) if False else None
        return z * 3

    return fn, calls


@table.program(breaks=True, min_graphs=1)
def border_call_raises_through() -> Any:
    @fineline.disable
    def risky(x):
        raise LookupError("no")

    def fn(x):
        y = x * 2
        x += 1
        return risky(y)

    return fn, None


@table.program(breaks=True)
def border_call_raises_into_a_generator() -> Any:
    @fineline.disable
    def risky(k):
        if k == 1:
            raise KeyError(k)
        return k

    def fn(x):
        def values():
            for k in range(3):
                try:
                    yield x * risky(k)
                except KeyError:
                    yield x - 1

        return [v + 1 for v in values()]

    return fn, None


@table.program(breaks=True)
def border_result_of_many_kinds() -> Any:
    class Thing:
        def __init__(self, v):
            self.v = v

    @fineline.disable
    def make(x):
        return {"t": x + 1, "l": [x, 2], "o": Thing(x), "n": None, "s": "s", "e": ...}

    def fn(x):
        got = make(x)
        got["o"].w = got["t"] * 2
        got["l"].append(got["o"].v + 1)
        return got, got["s"] + "x"

    return fn, None


# -- where the next instruction is not the next one of the text ---------------------------------------------------------
class Ending:
    """``n`` numbers, each asked for eagerly."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        graph_break()
        if not self.n:
            raise StopIteration
        self.n -= 1
        return self.n + 1


class Odd:
    def __init__(self, n):
        self.n = n

    @fineline.disable
    def __bool__(self):
        return self.n % 2 == 1


def ends_with_a_break(n):
    yield from Ending(n)
    graph_break()


NUMBERED: dict[str, Any] = {"breaks": True, "args": lambda place: (t(place), (0, 3, 2)[place]), "recompiles": (1, 2)}


@table.snippet(**NUMBERED)
def behind_loops_that_leave_at_once(x, n):
    y, z = x * 3, x * 4
    for i in Ending(n):
        return x * i
    for i in ends_with_a_break(n):
        return x * i
    return y * 2 + z


@table.snippet(**NUMBERED)
def behind_a_delegation_that_is_left(x, n):
    def given():
        y = x * 3
        try:
            yield from Ending(n)
        except GeneratorExit:
            return
        yield y

    return [v * 2 for v in given()]


@table.snippet(**NUMBERED)
def operands_that_are_written_over(x, n):
    y = x * 3
    z = x * 4
    one, two = Odd(n) or (y := x + 1), Odd(n) and (z := x + 2)
    return y * 2, z * 2, type(one).__name__, type(two).__name__


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_live_values(program: Program, twin: str) -> None:
    check(program, twin)
