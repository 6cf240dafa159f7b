"""Iterators and other objects of C code that the program has not made: what they hold, how far they are, and who else holds them."""

from __future__ import annotations

import array
import collections
import csv
import functools
import heapq
import itertools
import operator
import re
from collections import deque
from typing import Any

import pytest
import torch

import fineline
from fineline import graph_break
from tests.oracle import Program, Table, check, t

table = Table()
LISTS = ([1, 2, 3], [5, 6], [5, 6, 7, 8], [1, 2, 3])


def items(place: int) -> tuple:
    return t(place), iter(LISTS[place])


def rest(it):
    return [str(v) for v in it]


# -- how far they are ------------------------------------------------------------------------------------------------
@table.snippet(breaks=True, calls=4, args=items, recompiles=(1, 2, 3))
def methods_of_an_iterator(x, it):
    hint = operator.length_hint(it), it.__length_hint__()
    return x * 2, hint, it.__next__(), type(it).__next__(it), rest(it)


@table.snippet(breaks=True, calls=4, args=lambda place: (t(place), csv.reader(["1,2", "3,4"][: place + 1] + ["5"])), recompiles=(1, 2, 3))
def walks_in_c(x, it):
    return x * 2, any(it), "7" in it, rest(it)


@table.snippet(breaks=True, calls=4, args=lambda place: (t(place), iter(array.array("i", LISTS[place]))), recompiles=(1, 2, 3))
def counted_and_added(x, it):
    return x * 2, sum(itertools.islice(it, 1)), operator.countOf(it, 3), rest(it)


@table.snippet(breaks=True, calls=4, args=items, recompiles=(1, 2, 3))
def in_the_place_of_a_slice(x, it):
    found = [0, 0]
    found.__setitem__(slice(0, 1), it)
    return x * 2, found, rest(it)


@table.snippet(breaks=True, calls=4, args=items, recompiles=(1, 2, 3))
def below_a_zip(x, it):
    pairs = zip(it, it)
    graph_break()
    first = next(pairs)
    graph_break()
    return x * first[0], rest(it), rest(pairs)


def test_methods_of_the_interpreters_own_iterators() -> None:
    def fn(x):
        made = map(abs, [-1, 2]), filter(None, [0, 3]), (k for k in (4, 5)), itertools.accumulate([1, 2]), itertools.pairwise([1, 2])
        return x * 2, [type(it).__next__(it) for it in made], [it.__next__() for it in made[:1]]

    compiled = fineline.compile(fn, backend="eager")
    for k in range(2):
        assert compiled(t(k))[1:] == fn(t(k))[1:]


# -- who else holds them ---------------------------------------------------------------------------------------------
class Holder:
    pass


class Slotted:
    __slots__ = ("it",)


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def iterators_in_containers(x, n):
    found = []
    for make in (list, deque, tuple, collections.UserList):
        holder = make([iter([1, 2, n])])
        it = holder[0]
        graph_break()
        found.append(next(it))
        graph_break()
        found += [next(holder[0]), holder[0] is it, rest(it)]
    table_ = {"it": enumerate([5, n])}
    it = table_["it"]
    graph_break()
    found += [next(it), list(table_["it"])]
    return x * n, found


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def iterators_in_objects_and_calls(x, n):
    found = []
    for holder in (Holder(), Slotted()):
        holder.it = it = iter([1, 2, n])
        graph_break()
        found.append(next(it))
        graph_break()
        found += [next(holder.it), holder.it is it]
    it = iter([1, 2, n, 4])
    step, call = it.__next__, functools.partial(next, it)
    graph_break()
    found += [next(it), step(), call()]
    graph_break()
    return x * n, found, rest(step.__self__)


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def one_of_several_in_turn(x, n):
    turns, found = [iter([1, n]), iter([2, 3])], []
    while turns:
        for it in list(turns):
            graph_break()
            try:
                found.append(next(it))
            except StopIteration:
                turns.remove(it)
    return x * n, found, list(heapq.merge([1, 4], [2, n + 3]))


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def around_blocks(x, n):
    found = []
    it = iter([1, 2, n, 4])
    both, holder = (it, it), deque([it])
    with fineline.disable():
        pass
    found.append(next(both[0]))
    with fineline.disable():
        found.append(next(holder[0]))
    for v in it:
        with fineline.disable():
            found.append(v)
    return x * n, found, both[0] is both[1] is it is holder[0]


@fineline.disable
def negative(v):
    return -v


@table.snippet(breaks=True, args=lambda place: (t(place), [1, 3, place]), recompiles=(1, 2))
def over_a_list_that_is_still_written(x, values):
    values.append(2)
    it = iter(values)
    first = next(it)
    holder = [it]
    graph_break()
    return x * first, list(holder[0]), list(map(negative, sorted(values, key=negative)))


# None can be made before the writes are replayed, nor put where it is held after them: it runs eagerly.
@table.snippet(breaks=True, min_graphs=0, args=lambda place: (t(place), {"a": 1, "b": place}, deque([1, place])), recompiles=(1, 2))
def over_a_dict_and_a_deque_that_are_still_written(x, named, row):
    named["c"] = 3
    row.append(7)
    holder = [iter(named), iter(named.items()), iter(row)]
    first = [next(it) for it in holder]
    graph_break()
    return x * 2, first, [list(it) for it in holder]


# -- what they hold --------------------------------------------------------------------------------------------------
@table.snippet(breaks=True, args=lambda place: (t(place), re.match(r"(\w)(\d)", f"a{place}")), recompiles=(1, 2))
def matches(x, match):
    return x * 2, match.group(), match.groups(), match.span(), match[2]


@table.snippet(breaks=True, args=lambda place: (t(place), array.array("i", [place, 2])), recompiles=(1, 2))
def arrays(x, row):
    return x * 2, sum(row), max(row), sorted(row), bytes(row), place_in(row)


def place_in(row):
    return 2 in row, row.index(2)


@table.snippet(args=lambda place: (t(place), ValueError("at", place), KeyError(place)), recompiles=(1, 2))
def exceptions(x, error, missing):
    return x * 2, str(error), repr(error), f"{missing}", error.args


@table.snippet(breaks=True, args=lambda place: (t(place), place), recompiles=(1, 2))
def caught_behind_a_break(x, n):
    try:
        fails(n)
    except (ValueError, OSError) as e:
        return x * 2, str(e), repr([e])


@fineline.disable
def fails(n):
    raise ValueError(f"number {n}") if n % 2 else OSError(n, "failed")


@table.program(calls=4, change={1: lambda rows: rows[0].__setitem__(1, 7), 3: lambda rows: rows[1].reverse()}, recompiles=(1, 3))
def lists_in_lists():
    rows = [[1, 2], [3, 4]]

    def fn(x):
        flat = list(itertools.chain.from_iterable(rows))
        made = dict(rows), collections.OrderedDict(rows), collections.defaultdict(int, rows)
        updated = {0: 0}
        updated.update(rows)
        return x * 2, flat, made, updated

    return fn, rows


class Key:
    def __init__(self, n: int) -> None:
        self.n = n

    def __hash__(self) -> int:
        return hash(self.n)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.n == other.n


@table.program(
    calls=5,
    breaks=True,
    recompiles=(1, 2, 3, 4),
    change={2: lambda held: held.__setitem__("c", t(9)), 3: lambda held: held.pop("a"), 4: lambda held: held.update(b=t(3))},
)
def a_chain_of_views_at_a_break() -> Any:
    held = {"a": t(1), "b": t(2)}

    def fn(x):
        it = itertools.chain([x], held.values(), held.items())
        y = next(it) * 2
        graph_break()
        items = [v if isinstance(v, torch.Tensor) else v[1] for v in it]
        return y, sum(items), len(items)

    return fn, held


@table.program(calls=3, breaks=True, recompiles=(1, 2))
def what_the_views_show_is_written() -> Any:
    held = collections.OrderedDict(a=t(1), b=t(2))

    def fn(x):
        it = itertools.chain([x], held.values())
        y = next(it) * 2
        graph_break()
        held["a"] = held["a"] + x
        held["b"] = held["b"] * 2
        total = sum(it)
        graph_break()
        return y, total

    return fn, held


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3), change={2: lambda held: held.update({Key(3): t(4)})})
def a_chain_of_keys_with_their_own_hash() -> Any:
    held = {Key(1): t(1), Key(2): t(2)}

    def fn(x):
        it = itertools.chain([x], held, held.values(), {Key(1)})
        y = next(it) * 2
        graph_break()
        items = list(it)
        return y * 2 + 1, [k.n for k in items if isinstance(k, Key)], sum(k for k in items if isinstance(k, torch.Tensor))

    return fn, held


# Chains whose iterators the chain has not reached at a graph break.
CHAINS = {
    "in_a_chain": lambda it, rest: itertools.chain.from_iterable(itertools.chain((it,), rest)),
    "of_the_rest": lambda it, rest: itertools.chain.from_iterable(itertools.chain(rest)),
    "in_a_list": lambda it, rest: itertools.chain([0], it, *rest),
    "in_a_dict": lambda it, rest: itertools.chain.from_iterable({1: it, 2: [5]}.values()),
    "that_is_limited": lambda it, rest: itertools.islice(itertools.chain(*rest, it), 6),
    "without_end": lambda it, rest: itertools.islice(itertools.chain.from_iterable(itertools.repeat([*it, 3])), 9),
}
for name, chain in CHAINS.items():
    for taken in (0, 2):

        @table.program(breaks=True)
        def a_chain_of_iterators(chain=chain, taken=taken):
            def fn(x):
                it, rest = iter([1, 2, 3]), iter([[7, 8], [9]])
                chained = chain(it, rest)
                y = x * 2
                first = [next(chained) for _ in range(taken)]
                graph_break()
                middle = next(chained)
                graph_break()
                return y * 3, first, middle, list(chained), list(it), list(rest)

            return fn

        table.programs[-1].name = f"a_chain_of_iterators_{name}_{taken}_taken"


# C does not describe these iterators any more: the dict or the set has grown.
GROWN = {
    "values": lambda held: iter(held.values()),
    "a_chain_of_lists": lambda held: itertools.chain.from_iterable([v] for v in held.values()),
    "an_enumerated_set": lambda held: enumerate(held["set"]),
}
for name, over in GROWN.items():

    @table.program(breaks=True, min_graphs=0)
    def an_iterator_over_what_has_grown(over=over):
        def fn(x):
            held = {"a": 1, "set": {1, 2}}
            it = over(held)
            y = x * 2
            first = next(it)
            held["more"] = 3
            held["set"].add(7)
            graph_break()
            try:
                return y * 3, first, list(it)
            except RuntimeError as error:
                return y * 3, first, str(error)

        return fn

    table.programs[-1].name = f"an_iterator_over_what_has_grown_{name}"


@table.snippet(breaks=True)
def a_dict_that_grows_after_the_last_item(x):
    held = {"a": 1, "b": 2}
    it = iter(held)
    y = x * 2
    graph_break()
    first = next(it)
    held["more"] = 3
    y = y + 1
    graph_break()
    return y * 2, first, held


@table.program(breaks=True, calls=4, recompiles=(1, 2, 3), min_graphs=0)
def tensors_that_have_been_moved():
    held = deque([torch.zeros(2), torch.ones(2), torch.zeros(2)])

    def fn(x):
        y = x.sin().cos().tan().exp().neg()
        held.rotate(1)
        it = iter(held)
        first = next(it)
        graph_break()
        return y, [first, *it]

    return fn, {"held": held}


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_iterators_from_outside(program: Program, twin: str) -> None:
    check(program, twin)
