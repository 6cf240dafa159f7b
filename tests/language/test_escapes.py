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


@table.program(args=lambda i: (t(i),))
def lazy_map_escapes() -> Any:
    def fn(x):
        return x * 2, map(lambda a: a * x, [1, 2]), filter(None, [0, 1]), (x * i for i in range(2))

    return fn


@table.program(min_graphs=0)
def begun_generator_escapes() -> Any:
    def fn(x):
        g = gen(x, 3)
        next(g)
        return x * 2, g

    return fn


@table.program(min_graphs=0)
def begun_generator_in_state() -> Any:
    s = types.SimpleNamespace(g=None, l=[], d={})

    def fn(x):
        g = gen(x, 4)
        next(g)
        s.g = g
        return x * 2

    return fn, s


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


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_escapes(program: Program, twin: str) -> None:
    check(program, twin)
