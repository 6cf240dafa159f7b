"""Special methods that are static, of the class, or callable objects, where builtins and statements ask for them."""

from __future__ import annotations

import functools
import math
import operator

import pytest

import fineline
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


class Item:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Item) and self.n == other.n

    def __hash__(self):
        return 1

    def __lt__(self, other):
        return self.n < other.n

    def __repr__(self):
        return f"Item({self.n})"


class Answers:
    """What C never asks for where it reads a list, a tuple or a dict."""

    def __iter__(self):
        return iter([Item(50)])

    def __len__(self):
        return 1

    def __getitem__(self, i):
        return Item(5)

    def __setitem__(self, i, value):
        raise ValueError(i)


class OddList(Answers, list):
    pass


class OddTuple(Answers, tuple):
    pass


class OddDict(Answers, dict):
    pass


def sequences(seq, kind):
    one, two, five = Item(1), Item(2), Item(5)
    same, more = kind([one, two]), kind([one, Item(3)])
    compared = seq == same, same == seq, seq != same, seq < more, seq >= more, kind.__eq__(seq, same), seq == type(seq)([one, two]), {1: seq} == {1: same}
    return compared, two in seq, five in seq, seq.count(two), call(seq.index, two), call(seq.index, five), call(seq.index, two, -1)


@table.snippet(breaks=True)
def sequences_with_answers_of_their_own(x):
    made = OddList([Item(2), Item(1)])
    told = sequences(OddList([Item(1), Item(2)]), list), sequences(OddTuple([Item(1), Item(2)]), tuple)
    made.sort()
    told += list.__getitem__(made, 0).n, call(made.remove, Item(2)), list.__len__(made)
    d = OddDict({Item(1): 1, Item(2): 2})
    return x + 1, repr(told), d == {Item(1): 1, Item(2): 2}, dict.__eq__(d, {Item(1): 1}), dict.__ne__(d, {Item(1): 1})


class Full:
    def __len__(self):
        return 3

    def __getitem__(self, at):
        if at > 2:
            raise IndexError
        return at

    def __iter__(self):
        return iter([1, 2])

    def __contains__(self, item):
        return True

    def __reversed__(self):
        return iter([3])

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return None

    def __add__(self, other):
        return 1

    def __hash__(self):
        return 1

    def __call__(self):
        return 2


def entered(obj):
    with obj:
        return 1


def star(obj):
    first, *rest = obj
    return first, rest, [*obj], [item for item in obj]


USES = [iter, list, sum, reversed, hash, len, callable, entered, star, lambda obj: obj + 1, lambda obj: obj(), lambda obj: 7 in obj, lambda obj: max(*obj), next]


def used(obj):
    return [text if type(text) is not Full and not hasattr(text, "__next__") else "an iterator" for text in [call(use, obj) for use in USES]]


@table.snippet(breaks=True)
def special_methods_that_are_none(x):
    found = []
    for name in ("__len__", "__iter__", "__contains__", "__reversed__", "__enter__", "__exit__", "__add__", "__hash__", "__call__", "__getitem__", "__next__"):
        found.append((name, used(type("Empty", (Full,), {name: None})())))
    return x + 1, repr(found)


ODD = OddList([Item(1), Item(2)])


@table.snippet(breaks=True)
def sequences_from_outside_with_such(x):
    return x + 1, repr(sequences(ODD, list))


class Bound:
    """A descriptor that is no function."""

    def __init__(self, asked):
        self.asked = asked

    def __get__(self, obj, cls):
        return lambda key: self.asked.append(key) or (cls.__name__, key)


@table.snippet(breaks=True)
def what_a_dict_asks_for_missing_keys(x):
    asked = []
    kinds = [Fixed(3), Bound(asked), staticmethod(lambda key: key * 2), classmethod(lambda cls, key: (cls.__name__, key)), lambda self, key: (len(self), key)]
    dicts = [type("Own", (dict,), {"__missing__": kind})(k=1) for kind in kinds]
    return x + 1, [(d["k"], d["none"], call(operator.getitem, d, "more")) for d in dicts], asked


@table.snippet()
def methods_of_none(x):
    found = [None.__ne__(None), None.__eq__(None), None.__eq__(3), None.__bool__(), None.__repr__()]
    return x + 1, found, None.__ne__.__self__, type(None).__eq__(None, 1), None.__class__


SEEN = []


def see(*args):
    text = " ".join([str(v) if isinstance(v, (int, str)) else type(v).__name__ for v in args])
    SEEN.append(text)
    return text


class Partial:
    """Its methods bind from Python 3.14 on, and not before."""

    __setattr__ = functools.partial(see, "set")
    __delattr__ = functools.partial(see, "delete")
    __getattr__ = functools.partial(see, "get")
    __setitem__ = functools.partial(see, "set item")
    __getitem__ = functools.partial(see, "item")
    __call__ = functools.partial(see, "call")
    __add__ = functools.partial(see, "add")
    __radd__ = functools.partial(see, "radd")
    __contains__ = functools.partial(see, "contains")
    __iter__ = functools.partial(lambda *args: iter([len(args)]))
    __enter__ = functools.partial(see, "enter")
    __exit__ = functools.partial(see, "exit")
    __hash__ = functools.partial(lambda *args: len(args))
    __eq__ = functools.partial(lambda *args: len(args) == 2)


def set_and_deleted(o):
    o.a = 1
    del o.b
    o[1] = 2
    return o.c, "a" in vars(o)


def managed(o):
    with o as found:
        return found


@table.snippet(breaks=True)
def partial_objects(x):
    o = Partial()
    SEEN.clear()
    found = [call(set_and_deleted, o), call(managed, o), call(o, 1), call(lambda: o[3]), call(lambda: o + 4), call(lambda: 5 + o), call(lambda: 6 in o)]
    found += [call(list, o), call(lambda: [*o]), call(hash, o), call(lambda: o == 1), call(lambda: len({o: 1}))]
    return x + 1, found, " ".join(SEEN)


class Giving:
    def __init__(self, *result):
        self.result = result

    def __get__(self, obj, cls):
        SEEN.append(f"bound to a {cls.__name__}")
        return lambda *args: (see(*args, "called"), *self.result)[-1]


class Blocks:
    __enter__ = Giving(2)
    __exit__ = Giving(True)


class Computed:
    @property
    def __enter__(self):
        SEEN.append("read")
        return lambda: self

    @property
    def __exit__(self):
        raise AttributeError("no exit here")


@table.snippet()
def blocks_by_descriptors(x):
    SEEN.clear()
    with Blocks() as n:
        x = x * n
        raise ValueError
    try:
        with Computed():
            SEEN.append("inside")
    except AttributeError as e:
        SEEN.append(str(e))
    return x + 1, " ".join(SEEN)


@table.snippet(breaks=True)
def a_block_by_a_descriptor_with_a_break(x):
    with Blocks() as n:
        x = x * n
        fineline.graph_break()
        x = x + 1
    return x * 2


class CachedCall:
    __call__ = functools.lru_cache(lambda self, n: n * 2)


@table.snippet(breaks=True)
def a_call_with_a_cache(x):
    y, o = x * 3, CachedCall()
    return y * o(2), o(3)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_odd_methods(program: Program, twin: str) -> None:
    check(program, twin)
