"""Attributes of classes: by ``super()`` in class methods, from metaclasses, and properties, whose errors name them."""

from __future__ import annotations

import pytest

from tests.oracle import Program, Table, check

table = Table()


@table.snippet()
def super_in_a_class_method(x):
    class Noting:
        def __get__(self, obj, owner):
            return obj, owner.__name__

    class A:
        noting = Noting()

        @property
        def p(self):
            return 1

    class B(A):
        @classmethod
        def of_class(cls):
            return super().p is A.__dict__["p"], super().noting

        def of_instance(self):
            return super().p, super().noting[0] is self

    return x * B().of_instance()[0], B.of_class(), B().of_class(), B().of_instance()


@table.snippet()
def what_a_metaclass_holds(x):
    class Owner:
        def __get__(self, obj, owner):
            return obj.__name__, owner.__name__

    class Meta(type):
        owner = Owner()

        def __getattr__(cls, name):
            return "fallback " + name

        @staticmethod
        def twice(v):
            return v * 2

        @classmethod
        def named(mcs):
            return mcs.__name__

        @property
        def p(cls):
            return cls.__name__

    class A(metaclass=Meta):
        pass

    return A.twice(x), A.named(), A.p, A.missing, A.owner


@table.snippet()
def properties_without_a_getter(x):
    class Meta(type):
        of_class = property()

    class A(metaclass=Meta):
        of_instance = property()

    class B(A):
        def above(self):
            return super().of_instance

    said = []
    for read in (lambda: A().of_instance, lambda: B.of_class, lambda: B().above()):
        try:
            read()
        except AttributeError as e:
            said.append(str(e))
    return x + 1, said


@table.snippet()
def properties_without_a_setter(x):
    class A:
        @property
        def p(self):
            return x

    a = A()
    try:
        a.p = 3
    except AttributeError as e:
        return a.p + 1, str(e), a


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_class_attributes(program: Program, twin: str) -> None:
    check(program, twin)
