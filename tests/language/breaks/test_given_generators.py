"""Generators, and iterators over such, that eager code is given: they are Python's own, and what it takes of them is gone."""

from __future__ import annotations

import collections
import functools
import gc
import inspect
import itertools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fineline
from fineline.frames.frame import InterpretedGenerator
from tests.oracle import Program, Table, check, t

table = Table()
NUMBERED = {"breaks": True, "args": lambda place: (t(place), (1, 2, 0)[place]), "recompiles": (1, 2), "min_graphs": 0}


class Held:
    pass


def items(x):
    for k in range(4):
        yield x * k


@fineline.disable
def some(given, n):
    return [next(given) for _ in range(n)]


@fineline.disable
def kind(given):
    return type(given).__name__, inspect.isgenerator(given) and inspect.getgeneratorstate(given)


@fineline.disable
def marked(held, n):
    held.count = n
    return kind(held.it), some(held.it, n)


@fineline.disable
def grown(held, n):
    held.append(n)


@table.snippet(**NUMBERED)
def before_they_begin(x, n):
    g = items(x)
    return kind(g), some(g, n), list(g), kind(g)


@table.snippet(**NUMBERED)
def under_way(x, n):
    g = items(x)
    first = next(g)
    return first, kind(g), some(g, n), list(g), kind(g)


@table.snippet(**NUMBERED)
def in_attributes(x, n):
    a, b = Held(), Held()
    a.it, b.it = items(x), items(x + 1)
    first = next(b.it)
    taken = marked(a, n), marked(b, n)
    return first, taken, list(a.it), list(b.it), a.count, b.count


@table.program(**NUMBERED)
def in_attributes_of_what_was_there():
    held = Held()

    def fn(x, n):
        held.it = items(x)
        taken = marked(held, n)
        again, held.it = held.it, items(x + 2)
        next(held.it)
        return taken, list(again), marked(held, n), list(held.it)

    return fn, None


@table.snippet(**NUMBERED)
def in_containers(x, n):
    new, old = [items(x)], [items(x)]
    first = next(old[0])
    grown(new, n)
    grown(old, n)
    held = Held()
    held.both = (items(x), 1)
    next(held.both[0])
    return first, list(new[0]), list(old[0]), new[1], old[1], some(held.both[0], n), list(held.both[0])


@table.snippet(**NUMBERED)
def in_closures(x, n):
    g = items(x)

    def inner():
        return g

    taken = some(inner(), n)
    grown([inner], n)
    return taken, list(g), list(inner())


@table.snippet(**NUMBERED)
def below_others(x, n):
    g, h = items(x), items(x * 2)
    above, more = (v + 1 for v in g), (v + 1 for v in h)
    first = next(more)
    return first, some(above, n), list(g), list(above), some(h, n), list(more)


@table.snippet(**NUMBERED)
def iterators_over_them(x, n):
    both, numbered, mapped = zip(items(x), items(x + 1), strict=False), enumerate(items(x)), map(torch.neg, items(x))
    first = next(numbered)
    return first, kind(both), kind(numbered), kind(mapped), [(some(it, n), list(it)) for it in (both, numbered, mapped)]


@table.snippet(**NUMBERED)
def that_are_sent_to(x, n):
    log = []

    def given():
        try:
            got = yield x
            log.append(got)
            yield x * got
        finally:
            log.append("over")

    g = given()
    first = next(g), kind(g)
    second = g.send(n + 2), kind(g)
    g.close()
    return first, second, kind(g), log


@table.snippet(args=lambda place: (t(place), place))
def asked_for_their_state(x, n):
    g = items(x)
    states = [inspect.getgeneratorstate(g)]
    next(g)
    states.append(inspect.getgeneratorstate(g))
    list(g)
    return x + 1, [*states, inspect.getgeneratorstate(g)]


@table.snippet(breaks=True, min_graphs=0)
def in_what_is_returned(x):
    held, g = Held(), items(x)
    next(g)
    held.both = (g, 1)
    return held, x + 1


class Source:
    """Keeps a generator under way, and breaks the graph over and over before it gives an item."""

    def __init__(self, x):
        self.me, self.it = [self], items(x)

    def __iter__(self):
        return self

    def __next__(self):
        for i in range(14):
            len(np.random.permutation(i))
        return self.me[0] is self, next(self.it)


@table.program(breaks=True, recompiles=(1, 2), min_graphs=0)
def in_what_a_function_that_is_left_alone_works_on():
    held = Held()

    def fn(x):
        held.source = Source(x)
        found = [(same, v * 2) for same, v in held.source]
        return found, held.source.it, next(held.source, None)

    return fn, None


@fineline.disable
def called(method, *args):
    return method(*args)


@fineline.disable
def kinds(holder):
    return [type(v).__name__ for v in holder]


@fineline.disable
def kind_in(held):
    return type(held.it).__name__


class Slots:
    __slots__ = ("it",)


def adding(x):
    for k in range(4):
        got = yield x * k
        x = x if got is None else x + got


@table.snippet(**NUMBERED)
def by_their_methods(x, n):
    g, h = adding(x), adding(x)
    step, send = g.__next__, h.send
    first = called(step), step(), next(g)
    next(h)
    return first, called(send, n), send(n), some(h, n), [*g]


@table.snippet(**NUMBERED)
def by_methods_found_before(x, n):
    g = adding(x)
    send = g.send
    taken = some(g, n + 1)
    return taken, send(n), kind(g), next(g)


@table.snippet(**NUMBERED)
def in_what_does_not_change(x, n):
    g, held = items(x), Slots()
    held.it, both, single = g, (g, 1), frozenset([g])
    step = functools.partial(next, g)
    found = kind_in(held), kinds(both[:1]), kinds(single), called(step)
    return found, step(), next(held.it), g in single, held.it is g, both[0] is g


@table.snippet(**NUMBERED)
def as_keys(x, n):
    g = items(x)
    table, group = {1: n, g: x, 2: n}, {g}
    found = kinds(group), kinds(table)
    return found, g in group, list(table)[1] is g, table[g], some(g, n)


@table.snippet(**NUMBERED)
def beside_what_has_no_hash(x, n):
    g, held = items(x), Held()
    held.both = (g, {"n": n}), (1, g)
    found = kinds(held.both[0]), kinds(held.both[1])
    return found, held.both[0][1], next(held.both[1][1]), some(g, n)


@table.snippet(**NUMBERED)
def that_another_waits_for(x, n):
    def outer():
        last = yield from items(x)
        yield last

    g = outer()
    return some(g, n), next(g), some(g, n), list(g)


@table.snippet(**NUMBERED)
def where_capture_has_stopped(x, n):
    g = items(x)
    next(g)
    some(g, 1)
    h, held = items(x), Held()
    held.it = h
    found = kind(h), kinds([h]), kind_in(held), next(h), kind(h)
    return found, some(held.it, n), kind(zip(h, (1, 2), strict=False)), list(h)


@table.snippet(**NUMBERED)
def asked_for_their_code(x, n):
    g = items(x)
    about = g.gi_code is items.__code__, g.gi_yieldfrom, g.gi_frame.f_code.co_name, sorted(inspect.getgeneratorlocals(g))
    return about, next(g), some(g, n), list(g), inspect.getgeneratorstate(g), g.gi_frame


@table.snippet(**NUMBERED)
def groups_under_way(x, n):
    grouped = itertools.groupby(items(x[:n].sum()), key=lambda v: v.dim())
    key, group = next(grouped)
    return key, called(list, group), [*grouped]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_given_generators(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("persistent", [False, True])
def test_batches_of_workers(persistent: bool) -> None:
    data = TensorDataset(torch.arange(12.0).view(6, 2))
    loader = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=persistent, timeout=60)

    @fineline.compile(backend="eager")
    def epoch(x: torch.Tensor) -> torch.Tensor:
        for (batch,) in loader:
            x = x + batch.sum()
        return x

    assert [epoch(torch.ones(1)).item() for _ in range(3)] == [67.0] * 3


HELD: list[object] = []


def test_holders_that_are_frozen() -> None:
    """``gc.freeze()`` hides objects from the search."""

    def begun(x: torch.Tensor) -> torch.Tensor:
        found = items(x)
        HELD[:] = [found]
        y = x + next(found)
        fineline.graph_break()
        return y * 2

    gc.freeze()
    try:
        fineline.compile(begun, backend="eager")(torch.ones(2))
        assert type(HELD[0]) is types.GeneratorType and next(HELD[0]).tolist() == [1, 1]
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("outside", [False, True])
def test_one_search_finds_what_holds_them(outside: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each looks through all objects there are, whose number has nothing to do with the function's: only for what others hold besides the result."""
    searches, search = [], gc.get_referrers

    def noted(*olds: object) -> list:
        searches.append(len(olds))
        # The tuple of the arguments holds them too.
        return [holder for holder in search(*olds) if holder is not olds]

    monkeypatch.setattr(gc, "get_referrers", noted)

    def begun(x: torch.Tensor, n: int) -> list:
        found = [items(x) for _ in range(n)]
        for generator in found:
            next(generator)
        if outside:
            HELD[:] = [(generator, 2) for generator in found]
        return [found, {"held": [(generator, 1) for generator in found]}]

    found, more = fineline.compile(begun, backend="eager")(torch.ones(2), 20)
    assert [generator for generator, _ in more["held"]] == found
    assert all(next(generator).tolist() == [1, 1] for generator in found)
    if outside:
        assert all(generator is known for (generator, _), known in zip(HELD, found, strict=True))
        # The generators, and the tuples that hold them.
        assert searches and searches[0] == 20
    else:
        assert searches == []


WAYS: dict[str, Callable[[Any], Any]] = {
    "alone": lambda it: it,
    "in an attribute": lambda it: types.SimpleNamespace(a=it),
    "in a list of an object": lambda it: [types.SimpleNamespace(a=[it])],
    "in several": lambda it: [it, {"k": it, it: 2}, (it,), ((it,), [it])],
    "in a closure": lambda it: lambda: it,
    "in a set": lambda it: {it},
    "a method of it": lambda it: it.send,
    "a partial": lambda it: functools.partial(next, it),
    "in a list that holds itself": lambda it: (lambda held: held.append(held) or held)([it]),
    "in a deque": lambda it: collections.deque([it]),
    "kept elsewhere": lambda it: HELD.append(it) or it,
    "kept elsewhere in a tuple": lambda it: HELD.append((it, 1)) or [(it, 1)],
}


@pytest.mark.parametrize("way", WAYS)
def test_no_stand_in_is_left(way: str) -> None:
    """Only what takes its place holds a stand-in, and continues it."""
    HELD.clear()
    # Other tests have left stand-ins in cycles.
    gc.collect()

    def begun(x: torch.Tensor) -> Any:
        it = items(x.sin())
        next(it)
        return WAYS[way](it)

    result = fineline.compile(begun, backend="eager")(torch.ones(2))
    left = [obj for obj in gc.get_objects() if type(obj) is InterpretedGenerator and obj.gi_code is items.__code__]
    holders = [type(holder) for obj in left for holder in gc.get_referrers(obj) if holder is not left]
    assert result is not None and {*holders} <= {types.GeneratorType, types.MethodType}, holders
    HELD.clear()
