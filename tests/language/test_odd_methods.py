"""Special methods that are static, of the class, or callable objects, where builtins and statements ask for them."""

from __future__ import annotations

import functools
import math
import operator

import pytest

from tests.oracle import Program, Table, check

table = Table()


class Fixed:
    """A callable object that does not bind."""

    def __init__(self, value):
        self.value = value

    def __call__(self, *args):
        return self.value


def call(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


class Static:
    __iter__ = staticmethod(lambda: iter([1, 2, 3]))
    __index__ = staticmethod(lambda: 2)
    __bool__ = classmethod(lambda cls: False)
    __int__ = Fixed(5)
    __float__ = Fixed(2.5)
    __abs__ = staticmethod(lambda: "abs")
    __round__ = staticmethod(lambda *digits: digits)
    __divmod__ = classmethod(lambda cls, other: (cls.__name__, other))
    __reversed__ = staticmethod(lambda: iter([3, 2, 1]))
    __length_hint__ = staticmethod(lambda: 3)
    __str__ = staticmethod(lambda: "text")
    __repr__ = Fixed("repr")
    __format__ = staticmethod(lambda spec: "format " + spec)
    __hash__ = Fixed(7)
    __lt__ = staticmethod(lambda other: True)
    __rsub__ = staticmethod(lambda other: ("rsub", other))
    __trunc__ = Fixed(9)


@table.snippet(max_graphs=12, breaks=True)
def what_builtins_ask(x):
    o = Static()
    found = [list(o), [*o], tuple(o), sum(o), [v for v in o], sorted(o), list(zip(o, o)), max(o)]
    found += [operator.index(o), [1, 2, 3, 4][o], list(range(o)), not o, bool(o), 1 if o else 2]
    found += [call(abs, o), call(round, o), call(round, o, 2), call(divmod, o, 3), list(reversed(o)), call(math.trunc, o)]
    found += [o < 3, 5 - o, 3 in o]
    return x + len(found), found


@table.snippet(max_graphs=12, breaks=True)
def what_texts_and_numbers_ask(x):
    o = Static()
    return x + 1, int(o), float(o), str(o), repr(o), f"{o:a}", f"{o!r}", format(o, "b"), hash(o), {o: 1}[o], "%s" % o


class Stepping:
    left = 3

    def __iter__(self):
        return self

    @classmethod
    def __next__(cls):
        if not cls.left:
            raise StopIteration
        cls.left -= 1
        return cls.left


@table.program(max_graphs=6, breaks=True)
def an_iterator_whose_next_is_of_the_class():
    def fn(x):
        Stepping.left = 3
        found = [v for v in Stepping()]
        Stepping.left = 2
        first = next(Stepping())
        return x + first, found, list(Stepping())

    return fn


class Without:
    __iter__ = None
    __hash__ = None
    __add__ = None
    __len__ = None
    __call__ = None
    __bool__ = None
    __getitem__ = None


@table.snippet(max_graphs=6, breaks=True)
def methods_that_are_none(x):
    o = Without()

    asked = (lambda: iter(o), lambda: hash(o), lambda: o + 1, lambda: len(o), lambda: o(), lambda: o[0], lambda: not o, lambda: [*o])
    return x + 1, [call(fn) for fn in asked]


class Reading:
    def __init__(self):
        self.own = 1

    __getattr__ = staticmethod(lambda name: "static " + name)


class ReadingByObject:
    __getattr__ = Fixed("fixed")


class Missing(dict):
    __missing__ = staticmethod(lambda key: ("missing", key))


class Parametrized:
    def __class_getitem__(cls, key):
        return cls.__name__, key


class ByPlain:
    __class_getitem__ = staticmethod(lambda key: ("static", key))


@table.snippet(max_graphs=8, breaks=True)
def reads_of_what_is_not_there(x):
    o = Reading()
    found = [o.own, call(getattr, o, "lost"), call(getattr, ReadingByObject(), "lost"), call(hasattr, o, "any"), call(lambda: Missing(a=1)["b"])]
    return x + 1, found, Parametrized[3], call(lambda: ByPlain[4])


class Managed:
    def leave(self, kind, *rest):
        self.left = kind
        return True

    __enter__ = functools.partialmethod(lambda self, v: v, 3)
    __exit__ = functools.partialmethod(leave)


@table.snippet(max_graphs=4, breaks=True)
def managers_of_partial_methods(x):
    one = Managed()
    with one as v:
        raise KeyError(v)
    with one as v:
        y = x + v
    return y, v, one.left


class Made(type):
    __call__ = staticmethod(lambda *args: ("made", args))


class OfMade(metaclass=Made):
    pass


class Kept:
    @classmethod
    def __new__(cls, *args):
        return ("new", args[1:])


@table.snippet(max_graphs=6, breaks=True)
def classes_that_are_called_in_other_ways(x):
    return x + 1, call(OfMade, 3), call(Kept, 4)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_odd_methods(program: Program, twin: str) -> None:
    check(program, twin)
