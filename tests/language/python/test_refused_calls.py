"""Calls that Python refuses: wrong numbers of arguments to C functions, special methods that give what they must not."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import itertools
import math
import operator

import pytest

from tests.oracle import Program, Table, check

table = Table()


def attempt(f, *args, **kwargs):
    try:
        found = f(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)
    return found if type(found) in (int, float, bool, str, bytes, complex, type(None)) else type(found).__name__


BUILTINS = (hasattr, getattr, setattr, delattr, isinstance, issubclass, iter, next, abs, min, sum, sorted, zip, map, filter, divmod, pow, callable,
            type, dict, vars, ord, any, reversed, functools.reduce, functools.partial, operator.itemgetter)  # fmt: skip
METHODS = (list.append, list.extend, list.pop, dict.get, dict.update, dict.setdefault, set.add, set.update, str.join, tuple.index)


def given():
    return (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), ([],), ({}, 1), ("a", "b"), (int, int)



@table.snippet(breaks=True, min_graphs=0)
def numbers_of_arguments(x):
    return x + 1, [attempt(f, *args) for f in BUILTINS for args in given()], [attempt(f, bogus=1) for f in BUILTINS if f is not dict]


@table.snippet(breaks=True, min_graphs=0)
def methods_of_other_objects(x):
    return x + 1, [attempt(f, *args) for f in METHODS for args in given()]


@table.snippet(breaks=True)
def what_cannot_be_spread(x):
    x = x + 1
    bad = [3, None, object()]
    return x * 2, [attempt(lambda v=v: [1, *v]) for v in bad], [attempt(lambda v=v: (*v,)) for v in bad], [attempt(lambda v=v: {1, *v}) for v in bad]


@table.snippet(breaks=True)
def what_cannot_be_called(x):
    x = x + 1
    return x * 2, [attempt(what) for what in (copy, math, 3, None, "a")]


class HoldsPartials:
    count = functools.partial(lambda *given: len(given), 1)
    again = functools.partialmethod(lambda self, a, b: (a, b), 1)


FLAG = True


@table.snippet(breaks=True)
def what_newer_pythons_warn_about(x):
    x = x * ~FLAG
    held = HoldsPartials()
    return x + operator.invert(False) + held.count(2), held.again(3), HoldsPartials.count(2), ~(x.dim() == 2), ~x.dim()


@table.snippet(breaks=True)
def namespaces_by_keyword(x):
    x, a = x + 1, 3
    ways = [{"locals": {"a": 1}}, {"globals": {"a": 2}}, {"globals": {"a": 2}, "locals": {"b": 1}}, {"globals": None, "locals": {"a": 5}}, {"closure": None}]
    return x * 2, [attempt(lambda way=way: eval("a + 1", **way)) for way in ways], attempt(eval, "a", {"a": 4}, locals={"a": 5}), eval("a"), exec("b = 3", {})


class Gives:
    def __init__(self, value):
        self.value = value

    def _give(self, *args):
        return self.value

    __float__ = __int__ = __complex__ = __bytes__ = __index__ = __len__ = __length_hint__ = __hash__ = __str__ = __repr__ = __bool__ = _give
    __divmod__ = __round__ = __abs__ = __reversed__ = __format__ = __trunc__ = _give


ASKED = (float, int, complex, bytes, operator.index, len, operator.length_hint, hash, str, repr, bool, round, abs, format, math.trunc)


@table.snippet(breaks=True, min_graphs=0)
def answers_of_special_methods(x):
    values = (None, "a", 1, -1, 2.5, b"x", 1j, [1], 2**70, NotImplemented)
    return x + 1, [attempt(f, Gives(v)) for v in values for f in ASKED], attempt(len, Gives(True))


class Counted:
    """Notes how often it is asked, and what for."""

    def __init__(self, length, hint, asked):
        self.length, self.hint, self.asked = length, hint, asked

    def __iter__(self):
        self.asked.append("iter")
        return iter([1, 2])

    def __len__(self):
        self.asked.append("len")
        return self.length


class Hinting(Counted):
    def __length_hint__(self):
        self.asked.append("hint")
        return self.hint


class Hinted:
    """Has a hint alone, which no list needs: fineline does not ask for it."""

    def __iter__(self):
        return iter([1, 2])

    def __length_hint__(self):
        return 2


WAYS = (list, lambda o: [0].extend(o), lambda o: [0, *o], sorted)


@table.snippet(max_graphs=1)
def lengths_that_lists_ask_for(x):
    asked = []
    return x + 1, [attempt(way, Counted(length, 0, asked)) for length in (2, -1, None) for way in WAYS], asked


@table.snippet(max_graphs=1)
def hints_of_lengths(x):
    x, asked = x + 1, []
    return x * 2, [attempt(way, o) for o in (Hinted(), Hinting(2, 1, asked)) for way in WAYS], asked


@table.snippet(breaks=True)
def hints_that_are_asked_for(x):
    x, asked = x + 1, []
    objects = Hinting(-1, 1, asked), Hinting(None, "a", asked), Counted(2, 0, asked), Never(), 3, [1], iter([1])
    return x * 2, [attempt(operator.length_hint, o, 5) for o in objects], asked


@table.snippet(breaks=True)
def calls_that_only_c_refuses(x):
    x, nothing = x + 1, (v for v in [x])
    found = [attempt(sum, nothing, start) for start in ("a", b"a", bytearray(b"a"))]
    found += [attempt(itertools.islice, nothing, *bounds) for bounds in ((), (1, 2, 3, 4), ("a",), (-1,), (0, 1, 0))]
    found += [attempt(collections.defaultdict, list, nothing, nothing), attempt(int, Gives("a")), attempt(float, Gives(None))]
    return x * 2, found, len(list(nothing))


class Real64(float):
    pass


@table.snippet(breaks=True, calls=3, min_graphs=0)
def answers_that_c_warns_of(x):
    """At each call, and not at the capture alone."""
    return x + 1, int(Gives(True)), operator.index(Gives(True)), float(Gives(Real64(2.5))), x * 2


@table.snippet(breaks=True)
def both_sides_of_divmod(x):
    class Right:
        def __rdivmod__(self, other):
            return "right"

    return x + 1, divmod(Gives(NotImplemented), Right()), attempt(divmod, Gives(NotImplemented), 1), divmod(Gives(3), Right())


class Never:
    def __iter__(self):
        return self


class Number:
    def __iter__(self):
        return 5


@table.snippet(breaks=True)
def what_is_no_iterator(x):
    def spread(*args):
        return args

    def through(items):
        yield from items

    ways = (iter, list, tuple, lambda o: [v for v in o], lambda o: spread(*o), sum, set, dict.fromkeys, lambda o: list(map(str, o)),
            lambda o: list(zip(o, o, strict=False)), sorted, any, enumerate, lambda o: list(through(o)))  # fmt: skip
    return x + 1, [attempt(way, made()) for made in (Never, Number) for way in ways]


# -- classes ---------------------------------------------------------------------------------------------------------
@table.snippet(breaks=True)
def initialisers_that_are_no_functions(x):
    found = []

    class Property:
        __init__ = property(lambda self: 1 // 0)

    class Static:
        @staticmethod
        def __init__():
            found.append("static")

    return x + 1, attempt(Property), type(Static()).__name__, found


@table.snippet(breaks=True, calls=3)
def names_that_type_has_too(x):
    class Named:
        __name__ = property(lambda self: "own")
        __mro__ = 3

    print("k")
    return x + 1, Named().__name__, Named.__name__, Named.__dict__["__mro__"]


@table.snippet(breaks=True)
def metaclasses_that_make_no_class(x):
    class Meta(int):
        def __init__(*args, **kwargs):
            pass

        def __new__(cls, name, bases, namespace, **kwargs):
            return bases, kwargs

    class First(metaclass=Meta):
        pass

    class Second(0, 1, metaclass=Meta, key="value"):
        pass

    return x + 1, First, Second


@table.snippet(breaks=True)
def namespaces_with_keys_of_their_own(x):
    class Key:
        def __hash__(self):
            return hash("name")

        def __eq__(self, other):
            return False

    return x + 1, type("Made", (), {Key(): 5, "name": 3}).name


@table.snippet(breaks=True)
def subclasses_of_super(x):
    class Super(super):
        def __init__(self, *args):
            super(Super, self).__init__(*args)

    class Base:
        def name(self):
            return "base"

    class Derived(Base):
        def name(self):
            return "derived " + Super(Derived, self).name()

    return x + 1, Derived().name()


class Text(str):
    def __str__(self):
        return "other"


class Real(float):
    pass


class Count(int):
    def __repr__(self):
        return "count"

    def __index__(self):
        return 77


@table.snippet(breaks=True, calls=3)
def subclasses_of_values(x):
    text, real, count = Text("A"), Real("inf"), Count(5)
    print("a")
    return x + 1, ord(text), str(text), real, math.isnan(Real("nan")), count + 1, text, count


@table.snippet(breaks=True, calls=3)
def enumerations_made_in_the_call(x):
    class Colour(enum.Enum):
        red = [1]
        blue = [2]

    print("a")
    return x + 1, Colour([1]) is Colour.red, [*Colour][0] is Colour.red


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_refused_calls(program: Program, twin: str) -> None:
    check(program, twin)
