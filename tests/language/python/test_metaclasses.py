"""Metaclasses whose `__call__` goes on to that of `type`."""

from __future__ import annotations

import abc
import gc
import typing
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


class Marking(type):
    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.marked = len(args)
        return made


class Passing(abc.ABCMeta):
    def __call__(cls, *args, **kwargs):
        return type.__call__(cls, *args, **kwargs)


class Marked(metaclass=Marking):
    def __init__(self, a, b=2):
        self.a, self.b = a, b


class Passed(metaclass=Passing):
    def __new__(cls, n):
        return "another" if n == 3 else object.__new__(cls)

    def __init__(self, n):
        self.n = n


class Unfinished(Passed):
    @abc.abstractmethod
    def f(self):
        pass


class MarkedError(Exception, metaclass=Marking):
    pass


class MarkedList(list, metaclass=Marking):
    pass


def error_of(fn):
    try:
        return fn()
    except Exception as error:
        return type(error), str(error)


@table.snippet(max_graphs=1)
def metaclasses_that_make_objects(x):
    a, b = Marked(x), Marked(1, b=x)
    return a.a + b.b, a.marked, b.marked, error_of(Marked), error_of(lambda: type.__call__(Marked, 1, 2, 3)), Passed(3), Passed(1).n


# In two graphs of one operator each.
@table.snippet(breaks=True, min_graphs=0)
def what_type_makes(x):
    error, items = MarkedError("a", 1), MarkedList([1, 2])
    told = type.__call__(type, 3), type.__call__(int, "3"), type.__call__(Marked, **{"a": 1}).a, type.__call__(type, "Z", (), {"q": 1}).q
    return x * len(items) + items.marked, error.args, error.marked, items, told, error_of(lambda: Unfinished(1)), error_of(lambda: type.__call__())


@table.program(recompiles=(1,))
def one_object_of_a_class() -> Any:
    class Single(type):
        made: dict = {}

        def __call__(cls, *args, **kwargs):
            if cls not in cls.made:
                cls.made[cls] = super().__call__(*args, **kwargs)
            return cls.made[cls]

    class One(metaclass=Single):
        def __init__(self, n):
            self.n = n

    return lambda x: (x * One(2).n, One(3).n, One(2) is One(5))


class Checking(type):
    def __instancecheck__(cls, other):
        return cls.fits(other)


class Matrix(metaclass=Checking):
    fits = staticmethod(lambda other: isinstance(other, torch.Tensor) and other.dim() == 2)


class Even(metaclass=Checking):
    fits = staticmethod(lambda other: isinstance(other, int) and other % 2 == 0)


@table.snippet(args=lambda place: (t(place, 2 + place // 2, 3),), recompiles=(2,))
def classes_that_tell_their_instances_of_what_is_computed(x):
    y, n = x * 2, x.shape[0]
    told = [isinstance(v, Matrix) for v in (x, y, y[0], n)], [isinstance(v, Even) for v in (x, n, n + 1, n * 2)]
    match y.sum(0):
        case Matrix():
            told += (2,)
        case _:
            told += (1,)
    return y, told


class Quacking(type):
    def __instancecheck__(cls, other):
        return super().__instancecheck__(other) or hasattr(other, "quack")


class Bird(metaclass=Quacking):
    pass


class Duck(Bird):
    pass


class Toy:
    quack = True


class Posing:
    @property
    def __class__(self):
        return Duck


class Shy:
    @property
    def __class__(self):
        raise AttributeError


@table.program(args=lambda place: (t(place, 2 + place // 2, 3), Duck() if place < 3 else 3), calls=4, recompiles=(2, 3))
def classes_that_ask_type_for_their_instances():
    kept = [Bird(), Duck(), Toy(), Posing(), Shy(), Bird, None]

    def fn(x, other):
        told = [(isinstance(v, Bird), isinstance(v, Duck), type.__instancecheck__(Bird, v)) for v in (*kept, other, x, x.shape[0])]
        return x * sum(told[0]), told

    return fn, kept


class Kind:
    """Not a class, and taken for one by isinstance() and issubclass()."""

    def __init__(self, *bases):
        self.bases = bases

    @property
    def __bases__(self):
        return self.bases


class OfKind:
    def __init__(self, kind):
        self.kind = kind

    @property
    def __class__(self):
        return self.kind


@table.program(breaks=True)
def objects_in_place_of_classes():
    upper = Kind()
    lower = Kind(upper)
    values = [OfKind(lower), OfKind(upper), OfKind(int), 3]

    def fn(x):
        told = [(isinstance(v, upper), isinstance(v, lower), isinstance(v, (int, upper))) for v in values]
        return x + 1, told, issubclass(lower, upper), issubclass(upper, (lower, int)), isinstance(x, typing.Hashable)

    return fn, values


class Backend:
    factor = 1


class First(Backend):
    factor = 2


class Second(Backend):
    factor = 3


@table.program(max_graphs=1)
def all_subclasses():
    def fn(x):
        for cls in [*Backend.__subclasses__(), *type.__subclasses__(First)]:
            x = x * cls.factor
        found = Backend.__subclasses__()
        found.append(Backend)
        return x, found, Backend.__subclasses__(), First.mro()

    return fn


def gone(held):
    held.pop()
    gc.collect()


# Eager code may end another collection at the last of these calls.
@table.program(calls=5, recompiles=(2, 4), change={2: lambda held: held.append(type("Late", (held[0],), {"factor": 5})), 4: gone}, steady=False)
def subclasses_that_come_and_go():
    class Base:
        factor = 2

    held = [Base]

    def fn(x):
        for cls in Base.__subclasses__():
            x = x * cls.factor
        return x + len(Base.__subclasses__())

    return fn, held


@table.program(breaks=True)
def subclasses_of_a_class_made_here():
    def fn(x):
        class Base:
            factor = 2

        class Derived(Base):
            factor = 3

        fineline.graph_break()
        for cls in Base.__subclasses__():
            x = x * cls.factor
        return x

    return fn


class Meta(type):
    def __subclasses__(cls):
        return [*super().__subclasses__(), int]


class Listed(metaclass=Meta):
    pass


class Entry(Listed):
    pass


@table.snippet(max_graphs=1)
def a_metaclass_that_lists_more(x):
    return x + len(Listed.__subclasses__()), Listed.__subclasses__(), type.__subclasses__(Listed)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_metaclasses(program: Program, twin: str) -> None:
    check(program, twin)


# Not by the oracle, which compares classes itself.
def test_super_in_classes_that_are_equal() -> None:
    class Meta(type):
        def __eq__(cls, other):
            return True

        __hash__ = type.__hash__

    class Base(metaclass=Meta):
        def value(self, x):
            return x.sin()

    class Middle(Base):
        def value(self, x):
            return super().value(x) + 1

    class Last(Middle):
        def value(self, x):
            return super().value(x) * 2

    one = Last()
    compiled = fineline.compile(one.value, backend="eager", fullgraph=True)
    for k in range(3):
        assert torch.equal(compiled(t(k)), one.value(t(k)))
