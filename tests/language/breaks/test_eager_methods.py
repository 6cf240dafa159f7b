"""Special methods that run eagerly, between two graphs: what Python makes of their results and exceptions stays the same."""

from __future__ import annotations

import contextlib
import functools
import itertools

import numpy as np
import pytest
import torch

import fineline
from fineline import Policy
from tests.oracle import Program, Table, check, t

table = Table()


def with_number(place):
    return t(place), (2, 3, 0)[place]


NUMBERED = {"breaks": True, "args": with_number, "recompiles": (1, 2), "min_graphs": 0}
ONCE = {"breaks": True, "min_graphs": 0, "recompiles": (1,)}


class Items:
    """``n`` items, one after the other."""

    def __init__(self, x, n):
        self.x, self.n, self.given = x, n, 0

    def __iter__(self):
        return self

    @fineline.disable
    def __next__(self):
        if self.given == self.n:
            raise StopIteration(self.x * self.n)
        self.given += 1
        return self.x + self.given

    @fineline.disable
    def send(self, value):
        return self.x * value

    @fineline.disable
    def throw(self, *error):
        raise StopIteration(self.n)


class Inside(Items):
    """Asks something that runs eagerly."""

    @fineline.disable
    def ask(self):
        return Items.__next__(self)

    def __next__(self):
        return self.ask()


class Idle(Items):
    """Breaks the graph over and over."""

    def __next__(self):
        for i in range(14):
            len(np.random.permutation(i))
        if self.given == self.n:
            raise StopIteration(self.x * self.n)
        self.given += 1
        return self.x + self.given


class Undecorated(Items):
    def __next__(self):
        return Items.__next__(self)


KINDS = (Items, Inside)


@table.snippet(**NUMBERED)
def loops(x, n):
    found = []
    for kind in KINDS:
        y = x
        for item in kind(x, n):
            y = y + item.sum()
        else:
            y = y * 2
        found += [y, [item * 2 for item in kind(x, n)], tuple(item * 3 for item in kind(x, n)), {i: v + 1 for i, v in enumerate(kind(x, n))}]
    return found


@table.snippet(**NUMBERED)
def unpacking(x, n):
    found = []
    for kind in KINDS:
        try:
            a, b = kind(x, n)
            found += [a * b]
        except ValueError as e:
            found.append(str(e))
        *c, = kind(x, n)
        found += [c, [x, *kind(x, n)], (lambda *args: args)(*kind(x, n))]
    return found


@table.snippet(**NUMBERED)
def functions_of_c(x, n):
    held = [x, x, x]
    held[1:2] = Items(x, n)
    held.extend(Items(x, n))
    held += Items(x, n)
    return (
        held, list(Items(x, n)), sum(Items(x, n), x), list(zip(Items(x, n), Items(x, n))), list(map(torch.neg, Items(x, n))),
        functools.reduce(torch.mul, Items(x, n), x), list(itertools.chain(Items(x, n), Items(x, n))), list(itertools.islice(Items(x, n), 2)),
        [next(Items(x, n), None), next(Items(x, 0), None)], any(item.sum() > 1e9 for item in Items(x, n)),
    )  # fmt: skip


@table.snippet(**NUMBERED)
def generators_that_delegate(x, n):
    def outer(kind):
        last = yield from kind(x, n)
        yield last * 5

    given = outer(Items)
    found = [next(given)]
    with contextlib.suppress(StopIteration):
        found.append(given.send(3))
        found.append(given.throw(KeyError(1)))
    return found, [list(outer(kind)) for kind in KINDS]


@table.snippet(**NUMBERED)
def a_generator_that_an_end_leaves(x, n):
    def endless():
        items = Items(x, n)
        while True:
            yield next(items) * 2

    found = []
    try:
        for item in endless():
            found.append(item)
    except RuntimeError as e:
        return found, str(e), type(e.__cause__).__name__


@table.snippet(**NUMBERED)
def idle_ones(x, n):
    y = x * 2
    for item in Idle(x, n):
        y = y + item

    def outer():
        last = yield from Idle(x, n)
        yield last + 1

    return y, list(outer())


@table.snippet(**NUMBERED)
def in_a_frame_that_runs_eagerly(x, n):
    @fineline.disable(recursive=False)
    def inner(x):
        return [item * 2 for item in Undecorated(x, n)], [item for item in Items(x, n)]

    return inner(x + 1), x * 2


class Numbers:
    """The old way to be iterated over."""

    @fineline.disable
    def __getitem__(self, i):
        if i > 2:
            raise IndexError(i)
        return i


@table.snippet(**ONCE)
def items_by_number(x):
    y = x
    for i in Numbers():
        y = y * i + 1
    a, b, c = Numbers()
    return y, list(Numbers()), sum(Numbers()), 2 in Numbers(), 5 in Numbers(), a, b, c


class Attributes:
    @fineline.disable
    def __getattr__(self, name):
        if name.startswith("no"):
            raise AttributeError(name)
        return name

    @property
    @fineline.disable
    def none(self):
        raise AttributeError("none")

    @property
    @fineline.disable
    def wrong(self):
        raise ValueError("wrong")


class Guarded:
    @fineline.disable
    def __getattribute__(self, name):
        raise AttributeError(name)

    def __getattr__(self, name):
        return name * 2


@table.snippet(**ONCE)
def attributes(x):
    held = Attributes()
    try:
        hasattr(held, "wrong")
    except ValueError as e:
        found = str(e)
    return x + 1, held.a, hasattr(held, "no"), getattr(held, "no", 3), hasattr(held, "none"), getattr(held, "none", 4), found, Guarded().ab


class Missing(dict):
    @fineline.disable
    def __missing__(self, key):
        if key == "none":
            raise KeyError(key)
        return key * 2


@table.snippet(**ONCE)
def keys(x):
    held = Missing(a=1)
    try:
        held["none"]
    except KeyError as e:
        return x + 1, held["a"], held["b"], held.get("c"), str(e)


class Shy:
    @fineline.disable
    def __add__(self, other):
        return NotImplemented

    __iadd__ = __lt__ = __eq__ = __add__
    __hash__ = None


class Bold:
    @fineline.disable
    def __radd__(self, other):
        return 3

    @fineline.disable
    def __gt__(self, other):
        return True


@table.snippet(**ONCE)
def operators_that_give_way(x):
    shy, bold = Shy(), Bold()
    y = x * (shy + bold)
    more = shy
    more += bold
    errors = []
    for op in (lambda: shy + 1, lambda: shy < 1):
        try:
            op()
        except TypeError as e:
            errors.append(str(e))
    return y, more, shy < bold, shy == shy, shy == 1, shy != 1, errors  # noqa: PLR0124


class Forgiving:
    @fineline.disable
    def __enter__(self):
        return 2

    @fineline.disable
    def __exit__(self, kind, *rest):
        return kind is ValueError


@table.snippet(**ONCE)
def blocks_that_forgive(x):
    with Forgiving() as n:
        x = x * n
        raise ValueError
    try:
        with Forgiving():
            x = x + 1
            raise KeyError(1)
    except KeyError as e:
        return x * 2, str(e)


@table.snippet(**ONCE)
def callbacks_that_end(x):
    @fineline.disable
    def until(v):
        if v == 2:
            raise StopIteration
        return v + 1

    held = [3, 2, 1]

    @fineline.disable
    def pop():
        if not held:
            raise StopIteration
        return held.pop()

    return list(map(until, [0, 1, 2, 3])), tuple(filter(until, [0, 1, 2])), [v * x for v in iter(pop, 3)], [v for v in map(until, [1, 2])], list(iter(pop, 9))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_eager_methods(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("verb", ["disable", "disable_frame"])
def test_items_that_a_rule_keeps_out(verb: str) -> None:
    def looped(x, n):
        return [item * 2 for item in Undecorated(x, n)], x + 1

    compiled = fineline.compile(looped, backend="eager", policy=Policy(**{verb: [Undecorated.__next__]}))
    for place in range(3):
        torch.testing.assert_close(compiled(*with_number(place)), looped(*with_number(place)))
