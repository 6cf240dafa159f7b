"""Objects that hold themselves, made in the call or given to it, and tuples that something else holds as well, across graph breaks."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import types

import pytest

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


class Plain:
    pass


class Listed(list):
    pass


class Keyed(dict):
    pass


# -- made in the call ------------------------------------------------------------------------------------------------
@table.snippet(calls=3)
def containers_made(x):
    d = {}
    d[1] = d
    inner = {}
    inner[1] = (inner,)
    items = []
    items.append((items,))
    deep = []
    deep.append({1: deep})
    return x + 1, d, inner, items, deep


@table.snippet(calls=3)
def sets_made(x):
    group, held = set(), Plain()
    held.group = group
    group.add(held)
    fixed = frozenset([Plain()])
    one = next(iter(fixed))
    one.fixed = fixed
    return x + 1, held.group is group, one.fixed is fixed, fixed


@table.snippet(calls=3)
def wrappers_made(x):
    items = []
    items.append(functools.partial(print, items))
    held = Plain()
    held.method = types.MethodType(lambda self: self, held)
    space = types.SimpleNamespace()
    space.me = [space]
    bounds = []
    bounds.append(slice(bounds, None, None))
    return x + 1, items, items[0], held.method, space.me[0] is space, bounds


@table.snippet(calls=3)
def subclasses_made(x):
    listed, keyed, queue = Listed(), Keyed(), collections.deque()
    listed.append(listed)
    listed.me = listed
    keyed[1] = keyed
    keyed.me = {2: keyed}
    queue.append(queue)
    return x + 1, listed, keyed, queue


@table.snippet(calls=3)
def exceptions_made(x):
    first, second, items = ValueError(), ValueError(), []
    first.args = (first,)
    second.me = second
    third = KeyError(items)
    items.append(third)
    return x + 1, first.args[0] is first, second.me is second, third.args[0][0] is third, third


@table.snippet(calls=3)
def attributes_made(x):
    y, held = x + 1, Plain()
    y.me = [y]
    held.own = (held.__dict__,)
    return y, held.own[0] is held.__dict__


@table.snippet(breaks=True, calls=3)
def printed(x):
    items = [0, 1]
    items.append(items)
    items.append(items)
    d = {}
    d["a"] = [d]
    items.append((items, d))
    return x + 1, str(items), repr(d), f"{items}", "%s %r" % (d, [items])


def or_too_deep(f):
    try:
        return f()
    except RecursionError:
        return "too deep"


@table.snippet(breaks=True, calls=3, min_graphs=0)
def compared(x):
    one, two, three, four = [1], [], [2], [2]
    two.append(one)
    one.append(two)
    three.append(three)
    four.append(four)
    found = [or_too_deep(lambda a=a, b=b: a == b) for a, b in ((one, two), (three, three), (three, [2, three]), (three, four))]
    return x + 1, found, three in three


@table.snippet(breaks=True, calls=3)
def iterators_over_what_holds_them(x):
    for make in (itertools.combinations, itertools.permutations):
        a = []
        it = make([1, 2, a, 3], 3)
        a.append(it)
        next(it)
        a.clear()
    a = []
    for it in (itertools.chain(a), itertools.cycle([a] * 2), zip([a] * 2, [a] * 2), itertools.zip_longest([a] * 2, [1]), enumerate([a])):
        a.append(it)
        next(it, None)
    n = len(a)
    a.clear()
    return x + 1, n


# -- given to the call -----------------------------------------------------------------------------------------------
def given(place):
    items = [t(place), place]
    items.append(items)
    d, held = {"x": t(place + 10), "n": place, "items": items}, Plain()
    d["me"], d["held"] = d, held
    held.me, held.items, held.d = held, items, d
    return t(place), items, d, held


@table.snippet(args=given, calls=3, recompiles=(1, 2))
def read_and_written(x, items, d, held):
    items[2][2][0].add_(1)
    held.me.items.append(d)
    return x + items[0] + d["me"]["x"] * d["n"], held.me.me.items is items, d["held"] is held, len(items)


@table.snippet(args=given, calls=3, breaks=True, recompiles=(1, 2))
def across_a_break(x, items, d, held):
    items.append(x)
    held.me.last = d
    print(len(items))
    items[2].append(d)
    return x * items[1], items[2] is items, held.last is d, repr(items[1:2]), list(d), items


@table.snippet(args=given, calls=3, breaks=True, min_graphs=0)
def copied(x, items, d, held):
    shallow, deep, other = copy.copy(items), copy.deepcopy(items), copy.deepcopy(held)
    return x + 1, shallow, deep[2] is deep, other.me is other, other.d["held"] is other


@table.snippet(args=given, calls=3, breaks=True, recompiles=(1, 2))
def looked_for(x, items, d, held):
    return x + 1, items in items, items == items, d == d, items == [items[0], items[1], items], items.index(items)  # noqa: PLR0124


# -- tuples that something else holds too ----------------------------------------------------------------------------
@table.snippet(calls=3, breaks=True)
def shared_with_a_list(x):
    pair = (x + 1, [1])
    items, held = [pair], Plain()
    held.pair = pair
    print("a")
    return pair is items[0], held.pair is pair, items, pair, x * 2


@table.snippet(calls=3, breaks=True)
def shared_with_tuples(x):
    pair = (x + 1, [1])
    twice, other, items = (pair, pair), (pair, 3), [pair]
    again = pair
    print("a")
    return twice[0] is twice[1], twice[0] is pair, other[0] is items[0], again is pair, x * 2


@table.snippet(calls=3, breaks=True)
def shared_with_what_it_holds(x):
    items = []
    pair = (items, 1)
    items.append(pair)
    print("a")
    return pair[0][0] is pair, items[0] is pair, repr(pair), x * 2


@table.snippet(calls=3, breaks=True)
def shared_with_a_generator(x):
    pair = (x + 1, [])

    def pairs():
        yield pair
        print("k")
        yield pair

    it = pairs()
    first = next(it)
    second = next(it)
    print("z")
    return x * 2, first is second, first is pair


@table.snippet(calls=3, breaks=True)
def shared_with_arguments(x):
    def both(*args):
        print("in")
        return args

    triple = (1, 2, x + 1)
    found = both(triple, triple)
    for k in triple[:2]:
        print(k)
    return found[0] is found[1], found[0] is triple


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_cycles(program: Program, twin: str) -> None:
    check(program, twin)


def test_a_list_that_holds_itself_is_given_again_and_again() -> None:
    """A miss looks for marks of sizes among the arguments, however they hold each other."""
    compiled = fineline.compile(lambda x, items: x + items[0], backend="eager")
    items: list = [1]
    items.append(items)
    for place in range(3):
        items[0] = place
        assert compiled(t(0), items).equal(t(0) + place)
