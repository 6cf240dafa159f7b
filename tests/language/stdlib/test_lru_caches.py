"""Functions with functools.lru_cache: what the caches hold, count and drop is what it is in eager calls."""

from __future__ import annotations

import functools
import logging
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import TWINS, Program, Table, check

table = Table()


class Pair:
    def __init__(self, left: int, right: int) -> None:
        self.left, self.right = left, right


# What a capture that is refused has counted stays counted.
NOT_STRICT = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "counted")


@table.program(twins=NOT_STRICT)
def tensor_of_constants() -> Any:
    @functools.lru_cache(None)
    def mask(n, dtype=torch.float32):
        return torch.ones(n, n, dtype=dtype).tril()

    def fn(x):
        return x @ mask(4) + mask(4).sum(), mask(4) is mask(4), mask(4, dtype=torch.int64), tuple(mask.cache_info())

    return fn


@table.program(calls=4, twins=NOT_STRICT)
def in_a_function_that_is_one_node() -> Any:
    @functools.lru_cache(None)
    def doubled(n):
        return n * 2

    @fineline.allow_in_graph
    def scaled(x):
        return x * doubled(x.dim())

    # A capture on fakes fills the cache, and the program's first call is a hit.
    doubled(2)
    return lambda x: (scaled(x) + 1, tuple(doubled.cache_info()))


@table.program(max_graphs=1)
def object_of_constants() -> Any:
    @functools.lru_cache
    def pair(a, b):
        return Pair(a, b)

    state: dict[str, Any] = {"seen": []}

    def fn(x):
        p = pair(2, b=3)
        return x * p.left + pair(2, b=3).right, p is pair(2, b=3), p is pair(2, 3)

    return fn, (state, pair)


@table.program(max_graphs=1, calls=5)
def result_that_is_changed() -> Any:
    @functools.lru_cache
    def numbers(n):
        return [n]

    def fn(x):
        numbers(1).append(len(numbers(2)))
        return x + 1, numbers(1)

    return fn, numbers


@table.program(change={2: lambda s: s.cache_clear()}, calls=4, recompiles=(2,), max_graphs=2)
def cleared_between_calls() -> Any:
    @functools.lru_cache(None)
    def table_of(n):
        return torch.arange(n) * 2.0

    def fn(x):
        t = table_of(4)
        return x + t, t

    return fn, table_of


@table.program(change={1: lambda s: (s.cache_clear(), s(4).add_(1)), 2: lambda s: s(4).mul_(3)}, max_graphs=1)
def filled_anew_between_calls() -> Any:
    @functools.lru_cache(maxsize=3)
    def table_of(n):
        return torch.arange(n) * 2.0

    def fn(x):
        return x + table_of(4)

    return fn, table_of


@table.program(change={2: lambda s: [s(k) for k in (10, 11, 12)]}, calls=4, recompiles=(2,), max_graphs=6, breaks=True)
def evicted_between_calls() -> Any:
    @functools.lru_cache(maxsize=2)
    def numbers(n):
        return [n, n + 1]

    def fn(x):
        return x * numbers(3)[1], numbers(3)

    return fn, numbers


TAKEN_OVER = {1: lambda s: [s(5), s(3).append(7)], 2: lambda s: [s(6), s(7), s(3).append(9)], 3: lambda s: s(8)}


@table.program(change=TAKEN_OVER, calls=5, recompiles=(1, 2, 3, 4), max_graphs=9, breaks=True)
def link_taken_over() -> Any:
    @functools.lru_cache(maxsize=1)
    def numbers(n):
        return [n]

    def fn(x):
        return x * len(numbers(3)), numbers(3)

    return fn, numbers


@table.program(calls=5, recompiles=(1, 2), breaks=True)
def thrashing() -> Any:
    @functools.lru_cache(maxsize=1)
    def numbers(n):
        return [n]

    def fn(x):
        y = x * len(numbers(3))
        return y + len(numbers(4)), numbers

    return fn, numbers


@table.program(calls=4, breaks=True, max_graphs=2)
def nothing_is_kept() -> Any:
    @functools.lru_cache(maxsize=0)
    def numbers(n):
        return [n]

    def fn(x):
        return (x + 1) * len(numbers(3)), numbers(3) is numbers(3)

    return fn, numbers


@table.program(calls=4, recompiles=(1,), breaks=True, max_graphs=3)
def effects_of_a_miss() -> Any:
    log: list[Any] = []

    @functools.lru_cache(None)
    def noted(n):
        log.append(n)
        print("made", n)
        return n + len(log)

    def fn(x):
        y = x.sin() + noted(3)
        return y.cos() + noted(3) + len(log), len(log)

    return fn, (log, noted)


@table.program(change={2: lambda s: s[1].cache_clear()}, calls=4, recompiles=(1, 2, 3), breaks=True, max_graphs=5)
def effects_after_clearing() -> Any:
    log: list[Any] = []

    @functools.lru_cache(None)
    def noted(n):
        log.append(n)
        return n

    def fn(x):
        for _ in range(3):
            x = x.sin() + noted(3)
        return x

    return fn, (log, noted)


_COUNT = 0


def _start() -> None:
    global _COUNT
    _COUNT = 0


@table.program(change={0: lambda _: _start(), 1: lambda s: s.cache_clear()}, recompiles=(1, 2), breaks=True, max_graphs=6)
def global_set_by_a_miss() -> Any:
    @functools.lru_cache(None)
    def counted(n):
        global _COUNT
        _COUNT += 1
        return n

    def fn(x):
        before = _COUNT
        y = x * counted(3)
        return y + (_COUNT - before), _COUNT - before

    return fn, counted


@table.program(calls=4, recompiles=(1,), breaks=True, max_graphs=4)
def error_is_not_kept() -> Any:
    log: list[Any] = []

    @functools.lru_cache(None)
    def picky(n):
        log.append(n)
        if n > 2:
            raise ValueError(f"{n} is too much")
        return n

    @functools.lru_cache(None)
    def closed(n):
        raise ValueError(f"{n} is too much")

    def fn(x):
        y = x + picky(1)
        try:
            y = y * picky(3)
        except ValueError as e:
            y = y - len(str(e))
        try:
            return y * closed(3)
        except ValueError as e:
            return y, str(e)

    return fn, (log, picky, closed)


@table.program(max_graphs=1)
def objects_for_keys() -> Any:
    @functools.lru_cache(None)
    def doubled(p, k=2):
        return Pair(p.left * k, p.right * k)

    state = {"p": Pair(1, 2), "doubled": doubled}

    def fn(x):
        return x * doubled(state["p"]).right + doubled(doubled(state["p"]), k=3).left

    return fn, state


@table.program(change={2: lambda s: s.update(p=Pair(3, 4))}, calls=4, recompiles=(2,), max_graphs=2)
def another_object_for_a_key() -> Any:
    @functools.lru_cache(None)
    def doubled(p):
        return p.right * 2

    state = {"p": Pair(1, 2), "doubled": doubled}

    def fn(x):
        return x * doubled(state["p"])

    return fn, state


@table.program(max_graphs=2, breaks=True, twins=NOT_STRICT)
def method_with_a_cache() -> Any:
    class Model:
        def __init__(self):
            self.k = 2

        @functools.lru_cache(maxsize=None)
        def scale(self, n):
            return torch.full((n,), 2.0)

    m = Model()

    def fn(x):
        return x * m.scale(4) + m.scale(n=4).sum(), tuple(Model.scale.cache_info())

    return fn, m


@table.program(max_graphs=1)
def types_told_apart() -> Any:
    @functools.lru_cache(typed=True)
    def named(v):
        return type(v).__name__

    @functools.lru_cache
    def first(v):
        return type(v).__name__

    def fn(x):
        return x + 1, named(1), named(True), named(1.0), first(1), first(True), first(1.0)

    return fn, (named, first)


@table.program(calls=4, max_graphs=2, breaks=True)
def between_breaks() -> Any:
    @functools.lru_cache
    def pair(a):
        return Pair(a, a + 1)

    def fn(x):
        y = x * pair(2).left
        print("between")
        return y * pair(2).right, pair(2)

    return fn, pair


@table.program(max_graphs=1, options={"dynamic": True}, args=lambda i: (torch.ones(3 + i, 4),), calls=4)
def sizes_besides() -> Any:
    @functools.lru_cache
    def pair(a):
        return Pair(a, a + 1)

    def fn(x):
        return x * pair(2).left * x.shape[0]

    return fn, pair


@table.program(max_graphs=1, options={"fullgraph": True})
def without_breaks() -> Any:
    @functools.lru_cache
    def mask(n):
        return torch.ones(n, n).tril()

    def fn(x):
        return x @ mask(4)

    return fn, mask


class Printing(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.getMessage())


# In no list of loggers, which other tests' handlers are in.
_LOG = logging.Logger("once")
_LOG.addHandler(Printing())


@functools.lru_cache(None)
def _once(log: Any, text: str) -> None:
    log.warning(text)


@table.program(change={0: lambda _: _once.cache_clear()}, calls=4, recompiles=(1,), breaks=True, max_graphs=3)
def warning_once() -> Any:
    def fn(x):
        for _ in range(4):
            x = x.sin()
            _once(_LOG, "slow")
            x = x + 1
        return x

    return fn


# -- numbers that vary --------------------------------------------------------------------------------------------------
def rows(k: int) -> tuple[torch.Tensor]:
    return (torch.arange(4.0 * (3 + k)).reshape(3 + k, 4),)


VARYING: dict[str, Any] = {"calls": 5, "args": rows, "backward": False}
ANEW: dict[str, Any] = {**VARYING, "recompiles": (1, 2, 3, 4), "breaks": True}


class Plan:
    def __init__(self, factor):
        self.factor = factor


@functools.lru_cache
def plan(factor):
    return Plan(factor)


# Functions of a module: each program has its own.
CACHED = """
@functools.lru_cache(32)
def product(n, k):
    return [n * k, n + k]

@functools.lru_cache
def planned(p, shape, more):
    return product(shape[0], p.factor), {"rows": shape[0] + more[0]}

@functools.lru_cache
def found(n):
    if n % 2:
        raise ValueError(f"{n} is odd")
    return Plan(n)

@functools.lru_cache
def endless(n):
    out = [n + 1]
    out.append(out)
    return out

@functools.lru_cache
def steps(n):
    return torch.arange(n)
"""


def with_caches() -> Any:
    module: dict[str, Any] = {"functools": functools, "torch": torch, "Plan": Plan}
    exec(CACHED, module)
    return module["product"], module["planned"], module["found"], module["endless"], module["steps"]


# With a border behind each operator the lists are alive at one.
@table.program(**VARYING, recompiles=(1,), max_graphs=2, twins=tuple([twin for twin in TWINS if twin != "borders"]))
def sizes_that_are_only_read() -> Any:
    product, planned, *_ = with_caches()

    def fn(x):
        (n, _), held = planned(plan(2), x.shape, (1,))
        a, b = product(x.shape[0], 2)
        return x.repeat(2, 1).reshape(n, 4) + b + held["rows"], a

    return fn, (product.cache_info, planned.cache_info)


@table.program(**VARYING, recompiles=(1,), max_graphs=2, twins=tuple([twin for twin in TWINS if twin != "borders"]))
def a_list_that_is_in_itself() -> Any:
    *_, endless, _ = with_caches()
    return (lambda x: x * endless(x.shape[0])[1][1][0] + 1), endless.cache_info


@table.program(**ANEW)
def lists_that_are_given() -> Any:
    product, *_ = with_caches()
    return (lambda x: (x * 2 + 1, product(x.shape[0], 3))), product


@table.program(**ANEW)
def lists_that_are_one() -> Any:
    product, *_ = with_caches()
    kept: list[Any] = []

    def fn(x):
        kept.append(product(x.shape[0], 5))
        return x * kept[-1][0] + 1, kept[-1] is product(x.shape[0], 5), product(x.shape[0], 4) is product(x.shape[0], 4)

    return fn, kept


@table.program(**ANEW)
def lists_that_are_changed() -> Any:
    product, *_ = with_caches()

    def fn(x):
        product(x.shape[0] // 2, 1).append(1)
        return x * len(product(x.shape[0] // 2, 1)) + 1

    return fn


@table.program(**ANEW)
def lists_at_a_break() -> Any:
    product, *_ = with_caches()

    def fn(x):
        held = product(x.shape[0], 2)
        y = x * held[0]
        fineline.graph_break()
        return y + held[1], held

    return fn


@table.program(**ANEW)
def objects_and_errors() -> Any:
    _, _, found, *_ = with_caches()

    def fn(x):
        try:
            held = found(x.shape[0])
            return x * held.factor + 1, held is found(x.shape[0])
        except ValueError as error:
            return x + 1, str(error)

    return fn, found.cache_info


def count(state: Any) -> None:
    """Writes down what the caches have counted so far."""
    counts, *caches = state
    counts.append([tuple(cache.cache_info()) for cache in caches])


COUNTED: dict[str, Any] = {"backward": False, "repeats": True, "change": dict.fromkeys(range(1, 5), count)}


@table.program(**COUNTED, calls=5, args=rows, recompiles=(1, 2, 3, 4), breaks=True, twins=NOT_STRICT)
def counted_once_where_the_call_raises() -> Any:
    product, *_, steps = with_caches()

    def fn(x):
        y = x * steps(x.shape[0]).sum() + product(2, 3)[0]
        if x.shape[0] == 4:
            raise ValueError("four")
        return y

    return fn, ([], product, steps)


@table.program(**COUNTED, calls=5, options={"fullgraph": True}, twins=("captured", "reference"))
def counted_once_where_the_capture_turns_to_fakes() -> Any:
    product, *_ = with_caches()

    def fn(x):
        y = x * product(3, 3)[1]
        z = y.nonzero()
        return z.sum() * z.shape[0] + product(4, 3)[0]

    return fn, ([], product)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_caches(program: Program, twin: str) -> None:
    check(program, twin)
