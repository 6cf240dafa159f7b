"""functools: partial objects that cross graph breaks and escape, dispatch by type, caches."""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


@table.program()
def partial_escapes() -> Any:
    def f(a, b, k=1):
        return a * b + k

    def fn(x):
        p = functools.partial(f, x, k=3)
        q = functools.partial(p, 2)
        return q(), p, q

    return fn


@table.program(breaks=True)
def partial_crosses() -> Any:
    def f(a, b, k=1):
        return a * b + k

    def fn(x):
        p = functools.partial(f, x, k=x + 1)
        y = p(2)
        fineline.graph_break()
        return p(3) + y, p.keywords, p.args, p.func is f

    return fn


@table.program()
def partial_read_and_set() -> Any:
    def f(a, b, k=1):
        return a * b + k

    def fn(x):
        p = functools.partial(f, x, k=3)
        p.note = 4
        p.keywords["k"] = 5
        d = p.keywords
        return p(2), d["k"], p.note, vars(p), repr(type(p)), p

    return fn


@table.program()
def partialmethod_used() -> Any:
    class Cell:
        def __init__(self):
            self.on = False

        def set(self, x, state, k=2):
            self.on = state
            return x * k

        up = functools.partialmethod(set, state=True)
        down = functools.partialmethod(set, state=False, k=3)

    c = Cell()

    def fn(x):
        return c.up(x) + c.down(x), c.on

    return fn, c


@table.program(recompiles=(1,))
def singledispatch_used() -> Any:
    @functools.singledispatch
    def f(a, x):
        return x

    @f.register
    def _(a: int, x):
        return x * a

    @f.register(list)
    def _(a, x):
        return x + len(a)

    class M:
        @functools.singledispatchmethod
        def g(self, a):
            return "any"

        @g.register
        def _(self, a: int):
            return "int"

    m = M()

    def fn(x):
        return f(2, x) + f([1, 2], x) + f("s", x), m.g(1), m.g("s"), f.dispatch(int) is f.registry[int]

    return fn


@table.snippet(breaks=True, max_graphs=1)
def partial_of_one_made_before_a_graph_break(x):
    plus = functools.partial(torch.add, x, alpha=2)
    fineline.graph_break()
    return functools.partial(plus, 3)()


def _other(box: Any) -> None:
    box.v = functools.partial(max, 7)


@table.program(calls=4, recompiles=(1, 2, 3), change={1: _other, 2: lambda box: box.v.keywords.update(key=abs)})
def partial_of_one_from_outside() -> Any:
    box = types.SimpleNamespace(v=functools.partial(max, 5, key=abs))

    def fn(x):
        return x * functools.partial(box.v, 1)(-6)

    return fn, box


@table.program()
def cached_things() -> Any:
    class A:
        def __init__(self, v):
            self.v = v
            self.n = 0

        @functools.cached_property
        def double(self):
            self.n += 1
            return self.v * 2

    def fn(x):
        a = A(x)
        return a.double + a.double, a.n

    return fn


class Halved(torch.Tensor):
    """A tensor with an attribute that is computed once."""

    @functools.cached_property
    def half(self) -> Any:
        return self / 2

    @functools.cached_property
    def raising(self) -> Any:
        raise ValueError("no value")


class Counted:
    def __init__(self) -> None:
        self.n = 0

    @functools.cached_property
    def value(self) -> Any:
        self.n += 1
        return self.n * 2

    @functools.cached_property
    def breaking(self) -> Any:
        fineline.graph_break()
        return self.n + 1


class CountedMeta(type):
    @functools.cached_property
    def title(cls) -> str:
        return cls.__name__


class Slotted(metaclass=CountedMeta):
    __slots__ = ("n",)

    @functools.cached_property
    def value(self) -> Any:
        return 1


@table.snippet(args=lambda place: (t(place).as_subclass(Halved),))
def cached_property_of_a_tensor(x):
    y = x + 1
    return x.half + x.half, "half" in x.__dict__, y.half * 2, sorted(y.__dict__)


@table.snippet(args=lambda place: (t(place), Counted()))
def cached_property_of_an_argument(x, a):
    return x * a.value + a.value, a.n


@table.program(change={2: lambda state: state.__dict__.pop("value")}, recompiles=(1, 2))
def cached_property_that_is_filled() -> Any:
    state = Counted()
    return lambda x: x * state.value, state


@table.snippet(args=lambda place: (t(place), Counted()), breaks=True)
def a_graph_break_in_a_cached_property(x, a):
    return (x + 1) * a.breaking, a.breaking


@table.snippet(min_graphs=0)
def cached_property_that_raises(x):
    found = [x + 1]
    for read in (lambda: x.as_subclass(Halved).raising, lambda: Slotted().value, lambda: Slotted.title):
        try:
            found.append(read())
        except (TypeError, ValueError) as e:
            found.append(str(e))
    return found


@table.program()
def lru_inside() -> Any:
    def fn(x):
        calls = []

        @functools.lru_cache(maxsize=None)
        def sq(n):
            calls.append(n)
            return n * n

        return x * (sq(2) + sq(2) + sq(3)), calls, sq.cache_info().hits

    return fn


class Wrapped(functools.partial):
    """As pyro wraps functions: an attribute of its own by the name of one of C's."""

    __slots__ = ("func",)

    def __init__(self, func, *args, **kwargs):
        self.func = func
        self.count = 0

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self.func, instance)


class Noted(functools.partial):
    def __call__(self, *args, **kwargs):
        return super().__call__(*args, **kwargs) + 1


def scaled(x, n=1, *, m=1):
    return x * n + m


@table.snippet(max_graphs=1)
def partials_of_a_class_of_the_users(x):
    one = Wrapped(functools.partial(scaled, m=3), x)
    two = Noted(one, 2)
    one.count += 1
    named = Wrapped(scaled, n=5)
    return one(), one(4), two(), two(m=7), one.func is scaled, one.args, named(x), named.count, type(two).__name__, functools.partial.__call__(one, 2)


@table.program(max_graphs=1)
def a_class_with_such_a_partial():
    class Holder:
        method = Wrapped(scaled)

        def __init__(self, v):
            self.v = v

        def __mul__(self, n):
            return self.v * n

    return lambda x: (Holder(x).method(2), Holder.method(x, 3))


@table.program(breaks=True)
def such_partials_across_breaks():
    def fn(x):
        one = Wrapped(scaled, x, m=2)
        one.count = 7
        many = [one, Noted(one, 3)]
        print("between")
        y = one() + many[1]() + one.count
        one.keywords["m"] = 5
        return y, one(), many, one.keywords

    return fn


@table.program(recompiles=(2,), change={2: lambda held: held.update(m=6)})
def a_partial_from_outside():
    keywords = {"m": 2}
    one = Wrapped(scaled, n=3)
    held = one.keywords
    held.update(keywords)
    return lambda x: one(x) + one.keywords["m"], held


@table.snippet(max_graphs=1)
def a_partial_of_nothing_callable(x):
    try:
        Wrapped(3, x)
    except TypeError as e:
        return x + len(str(e))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_functools(program: Program, twin: str) -> None:
    check(program, twin)
