"""What leaves a call before it is through: iterators, generators, lazy maps, views."""

from __future__ import annotations

import collections
import itertools
import types
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


def gen(x, n):
    for i in range(n):
        yield x * i


@table.program()
def iterators_escape() -> Any:
    def fn(x, xs=(1, 2, 3)):
        l = [x, x * 2, 3]
        it = iter(l)
        next(it)
        z = zip(l, "abc")
        next(z)
        e = enumerate(l, 5)
        r = reversed(l)
        next(r)
        return (
            x * 2,
            it,
            z,
            e,
            r,
            iter({"a": 1}.items()),
            itertools.chain(l, [1]),
            itertools.islice(l, 2),
            iter(range(3)),
            itertools.count(3),
            itertools.repeat(x, 2),
        )

    return fn


class Sized:
    """Has items, and a length, and no iterator of its own."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if not 0 <= i < self.n:
            raise IndexError
        return i


@table.snippet(args=lambda i: (t(i),))
def iterators_over_items_escape(x):
    backward, forward = reversed(Sized(4)), iter(Sized(4))
    next(backward), next(forward)
    return x * 2, type(backward) is reversed, backward, forward, reversed(Sized(2)), zip(Sized(3), backward)


@table.snippet(args=lambda i: (t(i),), breaks=True, recompiles=range(2), min_graphs=0)
def reversed_items_at_a_break(x):
    backward = reversed(Sized(5))
    y = x * next(backward)
    fineline.graph_break()
    return y + next(backward), backward


@table.snippet(args=lambda i: (t(i),), breaks=True, recompiles=range(2))
def methods_of_iterators(x):
    y = x * 2
    forward, backward, pairs, counted = iter(Sized(5)), reversed(Sized(5)), zip(Sized(4), Sized(3)), enumerate(Sized(4))
    forward.__setstate__(2)
    backward.__setstate__(1)
    next(pairs), next(counted)
    ends = iter(lambda: 3, 4)
    has = [hasattr(it, "__setstate__") for it in (forward, backward, pairs, ends)]
    return y * next(forward) + next(backward), backward.__length_hint__(), forward.__length_hint__(), has, next(pairs), next(counted)


@table.snippet(args=lambda i: (t(i), i), breaks=True, recompiles=range(6), max_graphs=6)
def how_an_iterator_is_rebuilt(x, i):
    y = x * 2
    its = iter(Sized(5)), reversed(Sized(5)), enumerate(Sized(4)), zip(Sized(4))
    it = its[i % 4]
    next(it)
    return y, it.__reduce__()[0], getattr(it, "__setstate__", None) is None


@table.snippet(args=lambda i: (t(i),), breaks=True, recompiles=range(4), max_graphs=4)
def how_iterators_in_a_tuple_are_rebuilt(x):
    y = x * 2
    its = iter(Sized(5)), reversed(Sized(5)), enumerate(Sized(4)), zip(Sized(4))
    for it in its:
        next(it)
    return y, [it.__reduce__()[0] for it in its], [type(it) for it in its], [list(it) for it in its]


@table.program(args=lambda i: (t(i),))
def lazy_map_escapes() -> Any:
    def fn(x):
        return x * 2, map(lambda a: a * x, [1, 2]), filter(None, [0, 1]), (x * i for i in range(2))

    return fn


@table.program(recompiles=(1,), breaks=True)
def begun_generator_escapes() -> Any:
    def fn(x):
        g = gen(x, 3)
        next(g)
        return x * 2, g

    return fn


@table.program(recompiles=(1,), breaks=True)
def begun_generator_in_state() -> Any:
    s = types.SimpleNamespace(g=None, l=[], d={})

    def fn(x):
        g = gen(x, 4)
        next(g)
        s.g = g
        return x * 2

    return fn, s


@table.program(recompiles=(1,), breaks=True)
def begun_generator_behind_a_break() -> Any:
    def fn(x):
        y = x * 3
        g = (y * i for i in range(4))
        next(g)
        torch._dynamo.graph_break()
        z = next(g) + y
        return z, g

    return fn


@table.program(recompiles=(1,), breaks=True)
def begun_generator_in_an_object() -> Any:
    class Holder:
        def __init__(self, x):
            self.steps = gen(x, 4)
            self.first = next(self.steps)

    def fn(x):
        holder = Holder(x + 1)
        return holder.first * 2, holder.steps, [holder]

    return fn


@table.program()
def types_inside() -> Any:
    def fn(x):
        m = map(lambda a: a * x, [1, 2])
        f = filter(lambda a: a, [0, 1])
        g = (i for i in [1])
        r = type(m).__name__, type(f).__name__, type(g).__name__, isinstance(m, map), isinstance(g, types.GeneratorType), iter(m) is m
        return x * 2, r, next(m), list(f), next(g), list(m)

    return fn


@table.program()
def views_asked() -> Any:
    def fn(x, n=2):
        d = {"a": x, "b": 3, "c": n}
        o = collections.OrderedDict(d)
        r = []
        for m in (d, o):
            r += [
                3 in m.values(),
                4 in m.values(),
                x in m.values(),
                ("b", 3) in m.items(),
                ("b", 4) in m.items(),
                ("a", x) in m.items(),
                ("z", 1) not in m.items(),
                "a" in m.keys(),
                5 in m.items(),
                "z" not in m.keys(),
            ]
            r.append(
                (
                    m.keys() & {"a", "q"},
                    sorted(m.keys() | {"q"}),
                    m.keys() == {"a", "b", "c"},
                    sorted(m.keys() - ["a"]),
                    m.keys().isdisjoint(["z"]),
                )
            )
        return x * 2, r, d.keys(), o.values(), types.MappingProxyType(d)

    return fn


def test_a_begun_generator_goes_on_as_a_generator() -> None:
    def fn(x):
        got = []

        def g():
            try:
                while True:
                    try:
                        got.append((yield x * len(got)))
                    except KeyError as error:
                        got.append(str(error))
            finally:
                got.append("closed")

        made = g()
        next(made)
        return made, [made], got

    for call in (fn, fineline.compile(fn, backend="eager")):
        made, again, got = call(t())
        assert type(made) is types.GeneratorType and made is again[0] and made.__name__ == "g"
        assert torch.equal(made.send(5), t())
        made.throw(KeyError("k"))
        made.close()
        assert got == [5, "'k'", "closed"]
        assert list(made) == []


class Items:
    """Iterated over by its items alone."""

    def __init__(self, *items):
        self.items = items

    def __getitem__(self, index):
        return self.items[index]


class Own:
    """Its steps are the user's code."""

    def __init__(self, *items):
        self.items = list(items)

    def __iter__(self):
        return self

    def __next__(self):
        if not self.items:
            raise StopIteration
        return self.items.pop(0)


LAZY: dict[str, Any] = {
    "accumulate": lambda: itertools.accumulate(Own(1, 2, 3)),
    "accumulate_from": lambda: itertools.accumulate(Own(1, 2, 3), lambda a, b: a * b, initial=5),
    "callable": lambda: iter(Own(1, 2, 3).__next__, 3),
    "chain": lambda: itertools.chain(Own(1, 2), Own(3), [4]),
    "chain_from": lambda: itertools.chain.from_iterable(Own([1], Own(2, 3), [4])),
    "compress": lambda: itertools.compress(Own("a", "b", "c"), Own(1, 0, 1)),
    "cycle": lambda: itertools.islice(itertools.cycle(Own(1, 2, 3)), 5),
    "dropwhile": lambda: itertools.dropwhile(lambda v: v < 2, Own(1, 2, 1)),
    "enumerate": lambda: enumerate(Own("a", "b", "c"), 5),
    "filter": lambda: filter(lambda v: v > 1, Own(1, 2, 3)),
    "filterfalse": lambda: itertools.filterfalse(lambda v: v > 2, Own(1, 2, 3)),
    "islice": lambda: itertools.islice(Own(*range(9)), 1, 7, 2),
    "map": lambda: map(lambda a, b: a * b, Own(1, 2, 3), Own(4, 5, 6)),
    "pairwise": lambda: itertools.pairwise(Own(1, 2, 3, 4)),
    "sequence": lambda: iter(Items(1, 2, 3)),
    "starmap": lambda: itertools.starmap(lambda a, b: a + b, Own((1, 2), (3, 4), (5, 6))),
    "takewhile": lambda: itertools.takewhile(lambda v: v < 3, Own(1, 2, 3, 4)),
    "zip": lambda: zip(Own(1, 2, 3), Own(4, 5, 6)),
    "zip_longest": lambda: itertools.zip_longest(Own(1), Own(2, 3, 4), fillvalue=0),
}
if hasattr(itertools, "batched"):
    LAZY["batched"] = lambda: itertools.batched(Own(1, 2, 3, 4, 5, 6, 7), 3)


@pytest.mark.parametrize("begun", range(3))
@pytest.mark.parametrize("kind", LAZY)
def test_a_lazy_iterator_escapes_as_itself(kind: str, begun: int) -> None:
    def fn(x):
        it = make()
        for _ in range(begun):
            next(it)
        return x * 2, it, [it]

    def rest(it: Any) -> tuple[Any, ...]:
        return type(it), [*it], [*it]

    make = LAZY[kind]
    expected = rest(fn(t())[1])
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(3):
        _, it, again = compiled(t())
        assert again[0] is it
        assert rest(it) == expected


def test_an_ended_iterator_escapes_as_itself() -> None:
    def fn(x):
        its = [make() for make in LAZY.values()]
        return x * 2, [[*it] for it in its], its

    expected = fn(t())
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(3):
        _, items, its = compiled(t())
        assert items == expected[1]
        assert [(type(it), [*it]) for it in its] == [(type(it), []) for it in expected[2]]


def test_groups_and_copies() -> None:
    def fn(x):
        one, two, three = itertools.tee(Own(1, 2, 3), 3)
        next(two), next(two), next(three)
        return x * 2, one, two, three, itertools.groupby(Own(1, 1, 2), lambda v: v > 1)

    def rest(made: Any) -> list[Any]:
        return [[type(it) for it in made[1:]], [[*it] for it in made[1:4]], [(key, [*group]) for key, group in made[4]]]

    compiled = fineline.compile(fn, backend="eager")
    for _ in range(3):
        assert rest(compiled(t())) == rest(fn(t()))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_escapes(program: Program, twin: str) -> None:
    check(program, twin)


class Breaking:
    """An iterator each item of which is behind a graph break."""

    def __init__(self, *values: Any) -> None:
        self.values = [*values]

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if not self.values:
            raise StopIteration
        fineline.graph_break()
        return self.values.pop(0)


def test_iterators_that_graph_breaks_go_through_escape_as_themselves() -> None:
    def fn(x):
        sums, pairs, more = itertools.accumulate(Breaking(1, 2, 3)), zip(Breaking(4, 5), Breaking(6, 7)), map(lambda a: a + 1, Breaking(1, 2))
        return x * 2, next(sums), [*pairs], [next(more)], sums, pairs, more

    def rest(made: Any) -> Any:
        return made[1:4], [(type(it), [*it]) for it in made[4:]]

    compiled = fineline.compile(fn, backend="eager")
    for _ in range(4):
        assert rest(compiled(t())) == rest(fn(t()))
