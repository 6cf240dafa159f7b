"""Which operand's special method is asked, how often and in which order, where methods decline: as C does it."""

from __future__ import annotations

import abc
import collections
import dataclasses
import itertools
import operator
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


def attempt(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error).__name__, str(error)


class Declines:
    """Notes what it is asked, and answers nothing."""

    def __init__(self, told):
        self.told = told

    def __index__(self):
        self.told.append("index")
        return 2

    __hash__ = None


def _declining(name):
    def method(self, *args):
        self.told.append(name)
        return NotImplemented

    return method


for _name in ("add", "radd", "iadd", "mul", "rmul", "imul", "pow", "matmul", "rmod", "divmod", "lt", "gt", "eq", "ne"):
    setattr(Declines, f"__{_name}__", _declining(_name))

OPERATORS = (operator.add, operator.mul, operator.lt, operator.eq, operator.ne, operator.pow, operator.matmul, operator.mod, operator.sub,
             divmod, operator.gt)  # fmt: skip


@table.snippet(breaks=True, min_graphs=0)
def asked_once_each(x):
    told, found = [], []
    one, two = Declines(told), Declines(told)
    for other in (two, 1, "s", [1], (1,), None, 2.5, b"b", {1}, {}):
        for op in OPERATORS:
            found.append(attempt(op, one, other))
            told.append("|")
            found.append(attempt(op, other, one))
            told.append("|")
    return x + 1, found, told


@table.snippet(breaks=True, min_graphs=0)
def asked_in_place(x):
    told, found = [], []
    one = Declines(told)

    def add_to_an_object():
        made = one
        made += 1

    def add_to_a_list():
        items = [1]
        items += one

    def repeat_a_list():
        items = [1]
        items *= one
        found.append(items)

    for f in (add_to_an_object, add_to_a_list, repeat_a_list):
        found.append(attempt(f))
        told.append("|")
    return x + 1, found, told


class Reflects:
    def __radd__(self, other):
        return "radd", other

    def __rmul__(self, other):
        return "rmul", other

    def __rmod__(self, other):
        return "rmod", other


class Text(str):
    def __radd__(self, other):
        return "text", other

    def __rmod__(self, other):
        return "modulo", other


@table.snippet(breaks=True, min_graphs=0)
def sequences_come_second(x):
    found, items = [], collections.UserList("ab")
    for first in ("s", [1], (1,), b"q", bytearray(b"z"), 1, 2.5, {}, None, collections.deque([1])):
        for second in (Reflects(), Text("x"), items):
            found += [attempt(op, first, second) for op in (operator.add, operator.mul, operator.mod)]
    joined = [1]
    joined += Reflects()
    return x + 1, found, joined


@dataclasses.dataclass
class Point:
    a: int


@table.snippet(calls=3)
def compared_with_none(x):
    point = Point(1)
    return x + 1, point == None, None == point, point != None, None != point, point == 1, [point] == [None]  # noqa: E711


class Without:
    """Methods that are None are not there, and Python says so."""

    __bool__ = __iter__ = __hash__ = __add__ = __radd__ = __lt__ = __call__ = __getitem__ = __index__ = __float__ = None
    __reversed__ = __neg__ = __iadd__ = None


@table.snippet(breaks=True, min_graphs=0)
def methods_that_are_none(x):
    one = Without()

    def added():
        made = one
        made += 1

    ways = (lambda: bool(one), lambda: not one, lambda: 1 if one else 2, lambda: iter(one), lambda: [v for v in one],
            lambda: hash(one), lambda: {one: 1}, lambda: one + 1, lambda: 1 + one, lambda: one < 1, lambda: one(), lambda: one[0],
            lambda: [1][one], lambda: float(one), lambda: reversed(one), lambda: -one, lambda: callable(one), lambda: range(one), added)  # fmt: skip
    return x + 1, [attempt(way) for way in ways]


@table.snippet(breaks=True, calls=3, steady=False)
def texts_with_addresses(x):
    def made():
        return 43

    d = collections.defaultdict(made)
    d[13]
    return x + 1, repr(d) == f"defaultdict({made!r}, {{13: 43}})", repr(collections.defaultdict(int, {1: 2}))


@table.snippet(breaks=True, args=lambda place: (t(place), [3, 1, 2][: place + 1]), recompiles=(1, 2))
def lists_that_change_while_they_are_sorted(x, items):
    def emptied(v):
        del items[:]
        return v

    return x + 1, attempt(lambda: items.sort(key=emptied)), items


class All:
    __hash__ = object.__hash__

    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return True

    def __contains__(self, item):
        return True

    def __iter__(self):
        return iter([1])

    def __add__(self, other):
        return "add"

    def __radd__(self, other):
        return "radd"

    def __len__(self):
        return 1

    def __bool__(self):
        return True


KINDS = [All] + [type(f"No{name}", (All,), {name: None}) for name in ("__eq__", "__lt__", "__contains__", "__iter__", "__add__", "__radd__", "__bool__", "__len__")]


@table.snippet()
def methods_that_a_class_rules_out(x):
    told = []
    for kind in KINDS:
        o = kind()
        told.append([
            attempt(f, o)
            for f in (
                lambda o: o == 3, lambda o: All() == o, lambda o: o != 3, lambda o: o < 3, lambda o: 3 > o, lambda o: 1 in o, lambda o: 1 not in o,
                lambda o: [*o], lambda o: o + 1, lambda o: 1 + o, lambda o: All() + o, bool, lambda o: not o, lambda o: 1 if o else 2, len,
                lambda o: any([o]), operator.truth, lambda o: operator.contains(o, 1),
            )
        ])  # fmt: skip
    return x + 1, told


class Base(metaclass=abc.ABCMeta):
    def __eq__(self, other):
        LOG.append("base")
        return NotImplemented

    def __add__(self, other):
        LOG.append("base")
        return NotImplemented

    __hash__ = None


class Virtual:
    def __eq__(self, other):
        LOG.append("virtual")
        return NotImplemented

    def __radd__(self, other):
        LOG.append("virtual")
        return 3

    __hash__ = None


Base.register(Virtual)
LOG: list[str] = []


@table.snippet()
def registered_subclasses_come_second(x):
    LOG.clear()
    return x + 1, Base() == Virtual(), Base() + Virtual(), [*LOG], issubclass(Virtual, Base)


class Bare:
    pass


class Refusing:
    def __iadd__(self, other):
        return NotImplemented


def add(a, b):
    a += b


def subtract(a, b):
    a -= b


def either(a, b):
    a |= b


def power(a, b):
    a **= b


def product(a, b):
    a @= b


def remainder(a, b):
    a %= b


def shifted(a, b):
    a <<= b


ASSIGNMENTS = [add, subtract, either, power, product, remainder, shifted]


@table.snippet()
def assignments_say_which_they_are(x):
    pairs = [(3, "a"), (None, 1), ([1], 1), ((1,), [1]), ({1}, [1]), ({}, 1), (1.5, b"a"), (range(2), 1)]
    return x + 1, [attempt(f, a, b) for f in ASSIGNMENTS for a, b in pairs]


@table.snippet()
def assignments_of_the_users_say_which_they_are(x):
    pairs = [(Bare(), 1), (1, Bare()), (Refusing(), 1), (Refusing(), Bare())]
    return x + 1, [attempt(f, a, b) for f in ASSIGNMENTS for a, b in pairs]


def counting(x):
    yield x
    yield x


def iterators(x):
    """Such as the interpreter has its own classes for."""
    return [
        counting(x), (y for y in [x]), map(lambda y: y, [x]), filter(lambda y: True, [x]), zip(counting(x), [x]), enumerate(counting(x)),
        itertools.chain([x], counting(x)), itertools.islice(counting(x), 1), itertools.accumulate([x, x]), itertools.groupby([1, 1], lambda y: y),
        iter(lambda: x, None), itertools.starmap(Bare, [(x,)]), itertools.takewhile(lambda y: True, [x]),
    ]  # fmt: skip


IMPOSSIBLE = {
    "added": lambda it: it + 1,
    "added to": lambda it: 1 + it,
    "called": lambda it: it(),
    "an item": lambda it: it[0],
    "compared": lambda it: it < 1,
    "negated": lambda it: -it,
    "measured": len,
    "an attribute": lambda it: it.absent,
    "a method": lambda it: it.absent(),
    "a float": float,
    "joined": lambda it: ",".join([it]),
    "an index": lambda it: [1][it],
    "keywords": lambda it: dict(**it),
    "a product": lambda it: it @ it,
}


def _on_iterators(name):
    def make():
        return lambda x: (x + 1, [attempt(IMPOSSIBLE[name], it) for it in iterators(x)])

    make.__name__ = f"iterators {name}"
    table.program(breaks=True, backward=False, min_graphs=0)(make)


for each in IMPOSSIBLE:
    _on_iterators(each)


class Unanswered:
    """Its operators are asked, and leave it to the other operand."""

    def __init__(self, asked):
        self.asked = asked

    def __radd__(self, other):
        self.asked.append(type(other).__name__)
        return NotImplemented


class Wrapped:
    """Its operators are those of a tensor, which does not answer for texts."""

    def __init__(self, x):
        self.x = x

    def __add__(self, other):
        return self.x.__add__(other)

    def __radd__(self, other):
        return self.x.__radd__(other)

    def __lt__(self, other):
        return self.x.__lt__(other)


@table.snippet()
def operators_that_no_operand_answers(x):
    w = Wrapped(x)
    found = [attempt(operator.add, a, b) for a, b in ((w, "a"), ("a", w), (w, None), (None, w), (w, w))]
    return w + 1, 2 + w, w < 1, found, attempt(operator.lt, w, "a"), x.__add__("a"), x.__eq__("a"), x.__iadd__(None)


@table.snippet()
def a_size_and_what_does_not_join_it(x):
    def extended(size, other):
        size += other
        return size

    asked = []
    other = Unanswered(asked)
    return x + 1, [attempt(op, x.shape, other) for op in (operator.add, extended, operator.iadd)], attempt(operator.add, (1, 2), other), asked


class Silent:
    pass


class Spoken:
    def __str__(self):
        return "spoken"


SILENT, SPOKEN = Silent(), Spoken()


def named(x):
    return x


def replaces(state):
    global SILENT
    SILENT = Silent()


def renames(state):
    named.__qualname__ = "renamed" if named.__qualname__ == "named" else "named"


def speaks(state):
    Silent.__repr__ = lambda self: "heard"


def is_silent_again(state):
    del Silent.__repr__


@table.program(calls=4, recompiles=(1, 3), max_graphs=1, change={1: speaks, 3: is_silent_again})
def an_object_whose_class_gets_a_text():
    return lambda x: (x.sin(), str(SILENT))


@table.program(calls=3, breaks=True, args=lambda k: (t(k), Silent()))
def texts_of_objects_that_do_not_last():
    def fn(x, given):
        made = Silent()
        y = x.sin()
        same = str(given) == repr(given), str(made) == repr(made)
        return y.cos(), same, "Silent" in str(lambda: made)

    return fn

@pytest.mark.parametrize("program", table.programs, ids=str)
def test_operands(program: Program, twin: str) -> None:
    check(program, twin)


def test_texts_of_functions_and_objects_that_last():
    """As of eager code in this process: they contain addresses."""
    def inner():
        pass

    def fn(x):
        texts = str(named), repr(inner), f"{named}", format(SILENT), str(SILENT), f"{SILENT!r}", f"{torch.sin} {len}", str(SPOKEN), repr(SPOKEN)
        return x + len(texts[0].split()), texts, named.__qualname__

    graphs: list[Any] = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend, fullgraph=True)
    for change in (None, None, renames, replaces, renames, None):
        if change is not None:
            change(None)
        found, expected = compiled(t(0)), fn(t(0))
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
    assert len(graphs) == 1
