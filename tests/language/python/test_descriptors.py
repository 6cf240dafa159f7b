"""Descriptors: properties, cached properties, class methods, and others with some of __get__, __set__ and __delete__."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Data:
    """A data descriptor that keeps its values on the instance, and notes each access."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        if obj is None:
            return self
        obj.log.append("get")
        return obj.__dict__[self.name]

    def __set__(self, obj: Any, value: Any) -> None:
        obj.log.append("set")
        obj.__dict__[self.name] = value

    def __delete__(self, obj: Any) -> None:
        obj.log.append("del")
        del obj.__dict__[self.name]


class Lazy:
    """Not a data descriptor: an instance attribute hides it."""

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        return ("lazy", obj is None, owner.__name__)


class Host:
    data = Data()
    lazy = Lazy()

    def __init__(self, value: Any) -> None:
        self.log: list[str] = []
        self.data = value


@table.snippet()
def properties(x):
    class P:
        def __init__(self, v):
            self._v = v
            self.reads = 0

        @property
        def v(self):
            self.reads += 1
            return self._v

        @v.setter
        def v(self, value):
            self._v = value * 2

        @v.deleter
        def v(self):
            self._v = None

    p = P(x)
    a = p.v + 1
    p.v = a
    b = p.v
    p.v += 1
    c = p.v
    del p.v
    return a, b, c, p.v, p.reads


@table.snippet()
def property_without_setter(x):
    class P:
        v = property(lambda self: 3)

    p = P()
    try:
        p.v = 4
    except AttributeError as error:
        return x * p.v, str(error)


@table.snippet()
def data_descriptors(x):
    host = Host(x)
    host.__dict__["data"] = "hidden by the descriptor"
    y = host.data * 2
    host.data = y
    del host.data
    try:
        host.data
    except KeyError as error:
        return y, host.log, error.args, type(Host.data).__name__


@table.snippet()
def descriptors_without_set(x):
    host = Host(1)
    before = host.lazy
    host.lazy = "own"
    own = host.lazy
    del host.lazy
    return x * 2, before, own, host.lazy, Host.lazy


@table.snippet()
def cached_property(x):
    class C:
        computed = 0

        def __init__(self, v):
            self.v = v

        @functools.cached_property
        def double(self):
            self.computed += 1
            return self.v * 2

    c = C(x)
    y = c.double + c.double
    c.v = x * 100
    same = c.double is c.__dict__["double"]
    del c.double
    return y, c.double, c.computed, same


@table.snippet()
def classmethod_property_chain(x):
    class C:
        k = 3

        @classmethod
        @property
        def p(cls):
            return cls.k

        @staticmethod
        def s():
            return C

    return x * C.p, C().p, C.s() is C, C.__dict__["s"].__func__()


@table.snippet()
def descriptor_called_by_hand(x):
    class A:
        def f(self, v):
            return v + self.k

    a = A()
    a.k = 4
    f = A.__dict__["f"].__get__(a, A)
    return f(x), f == a.f, f is a.f


@table.program(change={1: lambda a: setattr(a, "k", 5), 2: lambda a: delattr(a, "k")}, recompiles=(1,))
def property_from_outside() -> Any:
    class A:
        k = 2

        @property
        def factor(self):
            return self.k + 1

    a = A()
    return (lambda x: x * a.factor), a


@table.program(recompiles=(1,))
def descriptor_writes_from_outside() -> Any:
    host = Host(0)

    def fn(x):
        host.data = x * 2
        host.log.clear()
        return host.data + 1

    return fn, host


@table.program()
def class_by_property() -> Any:
    log = []

    class Posing:
        @property
        def __class__(self):
            log.append("asked")
            return int

    class Silent:
        def __getattribute__(self, name):
            log.append(name)
            if name == "__class__":
                raise AttributeError(name)
            return super().__getattribute__(name)

    def fn(x):
        p, s = Posing(), Silent()
        answers = [isinstance(o, k) for o in (p, s) for k in (int, Posing, str, (str, int), Iterable, Sized, object)]
        y = torch.stack([x, x]) if isinstance(p, (torch.Tensor, int)) else x
        return y, answers, type(p) is Posing

    return fn, log


class Positive:
    """A descriptor without `__get__`: what it writes is read from the instance's dict."""

    def __set_name__(self, owner, name):
        self.name = name

    def __set__(self, obj, value):
        if value < 0:
            raise ValueError(self.name)
        obj.__dict__[self.name] = value * 10


class OnlyDeleted:
    def __delete__(self, obj):
        obj.log.append("deleted")


class WrittenAndDeleted:
    def __set__(self, obj, value):
        obj.__dict__["third"] = value

    def __delete__(self, obj):
        del obj.__dict__["third"]


class WithoutGet:
    first, second, third = Positive(), OnlyDeleted(), WrittenAndDeleted()

    def __init__(self):
        self.log = []


@table.snippet(args=lambda place: (t(place), place + 1), recompiles=(1, 2))
def descriptors_without_get(x, n):
    obj, found = WithoutGet(), []
    for name, value in (("first", n), ("first", -n), ("second", n), ("third", n)):
        try:
            setattr(obj, name, value)
        except Exception as e:
            found.append((type(e).__name__, str(e)))
    del obj.second
    found += [obj.first, isinstance(obj.second, OnlyDeleted), obj.third]
    del obj.third
    try:
        del obj.first
    except Exception as e:
        found.append((type(e).__name__, str(e)))
    return x * obj.first, found, isinstance(obj.third, WrittenAndDeleted), obj.log, obj.__dict__


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_descriptors(program: Program, twin: str) -> None:
    check(program, twin)
