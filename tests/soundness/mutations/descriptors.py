"""Guard mutations of what answers in place of an attribute: descriptors, metaclasses, operators, abstract classes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from tests.soundness.mutations.cases import Cases, X, attr

CASES = Cases()
case = CASES.add


@case
def python_descriptor_replaced():
    class D:
        def __init__(self, n):
            self.n = n

        def __get__(self, obj, owner):
            return self.n

    class P:
        d = D(2)

    p = P()
    return lambda x: x * p.d, (X,), attr(P, "d", D(3))


@case
def python_descriptor_state():
    class D:
        n = 2

        def __get__(self, obj, owner):
            return self.n

    class P:
        d = D()

    p = P()
    return lambda x: x * p.d, (X,), attr(vars(P)["d"], "n", 3)


def descriptor_with(**methods):
    cls = type("D", (), methods)
    return cls, type("P", (), {"d": cls()})()


def written(p: Any) -> int:
    p.d = 4
    return vars(p).pop("d", 9)


def unwritten(p: Any) -> int:
    vars(p)["d"] = 1
    del p.d
    return vars(p).pop("d", 9)


for _what, _name, _use in (("set", "__set__", written), ("delete", "__delete__", unwritten)):
    for _with_get in (False, True):

        def _case(name=_name, use=_use, with_get=_with_get):
            cls, p = descriptor_with(**({"__get__": lambda s, o, t: 2} if with_get else {}))
            return lambda x: x * use(p), (X,), attr(cls, name, lambda s, *args: None)

        def _back(name=_name, use=_use, with_get=_with_get):
            cls, p = descriptor_with(**{name: lambda s, *args: None}, **({"__get__": lambda s, o, t: 2} if with_get else {}))
            return lambda x: x * use(p), (X,), attr(cls, name)

        CASES[f"descriptor_gets_{_what}{'_beside_get' * _with_get}"] = _case
        CASES[f"descriptor_loses_{_what}{'_beside_get' * _with_get}"] = _back


def with_descriptor():
    class D:
        def __get__(self, obj, owner):
            return 2

    class P:
        d = D()

    return D, P()


@case
def python_descriptor_get_patched():
    D, p = with_descriptor()
    return lambda x: x * p.d, (X,), attr(D, "__get__", lambda s, o, t: 3)


@case
def python_descriptor_set_added():
    D, p = with_descriptor()
    p.__dict__["d"] = 5

    def set_(self, obj, value):
        pass

    return lambda x: x * p.d, (X,), attr(D, "__set__", set_)


@case
def class_attr_becomes_a_descriptor():
    class D:
        pass

    class P:
        d = D()

    p = P()
    return lambda x: x * (2 if isinstance(p.d, D) else 3), (X,), attr(D, "__get__", lambda s, o, t: 3)


@case
def class_getattr_fallback_of_metaclass():
    class Meta(type):
        pass

    class P(metaclass=Meta):
        pass

    return lambda x: x * getattr(P, "n", 1), (X,), attr(Meta, "__getattr__", lambda c, n: 4)


@case
def metaclass_attr():
    class Meta(type):
        n = 2

    class P(metaclass=Meta):
        pass

    return lambda x: x * P.n, (X,), attr(Meta, "n", 4)


@case
def add_added_to_an_int_subclass():
    class N(int):
        pass

    n = N(2)
    return lambda x: x * (n + 1), (X,), attr(N, "__add__", lambda a, b: 10)


@case
def instancecheck_of_an_abc():
    import abc

    class A(abc.ABC):
        pass

    class P:
        pass

    p = P()
    registry = SimpleNamespace(on=False)

    @classmethod
    def hook(cls, sub):
        return True

    return lambda x: x * (2 if isinstance(p, A) else 3), (X,), clearing(attr(A, "__subclasshook__", hook), A)


@contextlib.contextmanager
def clearing(change: Any, cls: Any) -> Iterator[None]:
    cls._abc_caches_clear()
    with change:
        cls._abc_caches_clear()
        yield
    cls._abc_caches_clear()
