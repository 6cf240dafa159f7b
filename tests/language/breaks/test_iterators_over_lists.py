"""Iterators over lists that the call is given, and everything that may read them: each item is guarded, and the length where the list ends."""

from __future__ import annotations

import collections
import copy
import functools
import heapq
import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import Program, Step, Table, check, t

table = Table()
# Numbers, tensors and lengths that change from call to call, at the ends and in the middle.
LISTS = (
    [1, 2, 3, 4], [1, 2, 3], [1, 2, 3, 5], [1, 7, 3, 4], [1, 2, 3, 4, 5], [], [1, 2.0, "3", None], [1, 2, 3, 4],
)  # fmt: skip
CHANGING: dict[str, Any] = {"calls": len(LISTS), "recompiles": tuple(range(len(LISTS))), "backward": False}


def numbers(place: int) -> tuple[torch.Tensor, list[Any]]:
    return t(place, 3), list(LISTS[place])


def tensors(place: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
    return t(place, 3), [t(place + k, 3 if k < 3 else 2 + place % 2) for k in range(3 + place % 4)]


def reads(args: Callable[[int], tuple]) -> Callable[[Callable], Callable]:
    def add(fn: Callable) -> Callable:
        table.snippet(args=args, **CHANGING)(fn)
        return fn

    return add


class Items(tuple):
    pass


class Collected(list):
    pass


# -- Python code reads them ------------------------------------------------------------------------------------------------
@reads(numbers)
def one_by_one(x, b):
    it = iter(b)
    return x * 2, next(it, None), next(it, None)


@reads(numbers)
def to_the_second(x, b):
    for i, v in enumerate(b):
        if i == 1:
            return x + 1, v
    return x * 2


@reads(numbers)
def together(x, b):
    return x * 2, [(v, w) for v, w in zip(b, b)]


@reads(numbers)
def the_shorter_one(x, b):
    return x * 2, [(v, w) for v, w in zip(b, [5, 6])], [(v, w) for v, w in zip([5, 6], b)]


@reads(numbers)
def strictly(x, b):
    try:
        return x * 2, [(v, w) for v, w in zip(b, [5, 6, 7], strict=True)]
    except ValueError as e:
        return x * 3, str(e)


@reads(numbers)
def numbered_pairs(x, b):
    return x * 2, [(i, v, w) for i, (v, w) in enumerate(zip(b, iter(b)), len(b))]


@reads(numbers)
def an_iterator_that_both_read(x, b):
    it = iter(b)
    return x * 2, [(v, w) for v, w in zip(it, it)], next(it, "none")


@reads(numbers)
def behind_the_end(x, b):
    it = iter(b)
    for _ in it:
        pass
    return x * 2, next(it, "none"), list(it)


def given_on(b):
    yield from b
    yield from enumerate(b)


@reads(numbers)
def through_a_generator(x, b):
    return x * 2, [v for v in given_on(b)], next(given_on(b), None)


@reads(tensors)
def tensors_to_the_third(x, b):
    for i, v in enumerate(b):
        if i < 3:
            x = x + v
    return x * 2


@reads(tensors)
def tensors_together(x, b):
    for v, w in zip(b, [1, 2, 3]):
        x = x + v * w
    return x * 2


@reads(tensors)
def tensors_with_a_break(x, b):
    for i, v in enumerate(b):
        fineline.graph_break()
        x = x + v.sum() * i
    return x * 2


# -- C reads them ------------------------------------------------------------------------------------------------------------
@reads(numbers)
def collected(x, b):
    return x * 2, list(iter(b)), tuple(enumerate(b)), dict(enumerate(b)), [*zip(b, b)], collections.deque(iter(b))


@reads(numbers)
def collected_from_the_second_on(x, b):
    it = iter(b)
    return x * 2, next(it, None), list(it)


@reads(numbers)
def collected_in_classes(x, b):
    return x * 2, Items(iter(b)), Collected(enumerate(b)), Items(b), [type(v) for v in Items(zip(b, b))]


@reads(numbers)
def unpacked(x, b):
    try:
        first, second, third = iter(b)
        return x * 2, first, second, third
    except ValueError as e:
        return x * 2, str(e)


@reads(numbers)
def unpacked_with_a_star(x, b):
    try:
        (_, first), *rest = enumerate(b)
        return x * 2, first, rest
    except ValueError as e:
        return x * 2, str(e)


@reads(numbers)
def given_with_a_star(x, b):
    return x * 2, (lambda *args: args)(*enumerate(b)), print(*zip(b, b))


@reads(numbers)
def searched(x, b):
    it = iter(b)
    return x * 2, 2 in it, 3 in iter(b), (1, 2) in enumerate(b), (1, 1) in zip(b, b)


@reads(numbers)
def compared_and_counted(x, b):
    return x * 2, sorted(map(str, b)), operator.length_hint(iter(b)), iter(b).__length_hint__(), operator.countOf(iter(b), 2)


@reads(numbers)
def added_up(x, b):
    try:
        return x * 2, sum(iter(b)), max(iter(b), default=0), any(iter(b)), all(v for _, v in enumerate(b))
    except TypeError as e:
        return x * 2, str(e)


@reads(numbers)
def put_into_others(x, b):
    found: list[Any] = []
    found.extend(enumerate(b))
    found += zip(b, b)
    found[:1] = iter(b)
    group = set(map(str, b))
    group.update(map(repr, b))
    return x * 2, found, sorted(group)


@reads(numbers)
def read_by_itertools(x, b):
    return x * 2, list(itertools.islice(enumerate(b), 2)), list(itertools.chain(iter(b), zip(b))), next(itertools.cycle(iter(b)), None)


@reads(numbers)
def copied(x, b):
    it = iter(b)
    next(it, None)
    return x * 2, list(copy.copy(it)), list(it), it.__reduce__()[1:]


@reads(numbers)
def set_forward(x, b):
    it = iter(b)
    it.__setstate__(2)
    return x * 2, next(it, "none")


@reads(numbers)
def joined(x, b):
    try:
        return x * 2, ",".join(iter(b))
    except TypeError as e:
        return x * 2, str(e)


@reads(tensors)
def stacked(x, b):
    return x + torch.stack([v.sum() for _, v in enumerate(b)]).sum(), list(iter(b))[-1]


# -- they outlive the code that made them --------------------------------------------------------------------------------------
@reads(numbers)
def returned(x, b):
    it, pairs = iter(b), enumerate(b)
    next(it, None)
    return x * 2, list(b), [*it], [*pairs]


@table.snippet(args=numbers, **CHANGING)
def returned_as_they_are(x, b):
    it, pairs, both = iter(b), enumerate(b), zip(b, b)
    next(it, None), next(pairs, None), next(both, None)
    return x * 2, it, pairs, both


@reads(numbers)
def kept_in_what_the_call_is_given(x, b):
    it = iter(b)
    next(it, None)
    held = [it]
    fineline.graph_break()
    return x * 2, next(held[0], "none"), list(held[0])


@reads(numbers)
def over_a_list_that_grows(x, b):
    it, pairs = iter(b), enumerate(b)
    first = next(it, None), next(pairs, None)
    b.append(9)
    second = next(it, None), next(pairs, None)
    b.insert(0, 8)
    return x * 2, first, second, list(it), list(pairs)


@reads(numbers)
def over_a_list_that_shrinks(x, b):
    found = []
    for i, v in enumerate(b):
        found.append((i, v, b.pop()))
    return x * 2, found, b


@reads(numbers)
def over_a_list_that_is_emptied(x, b):
    found = []
    for v, w in zip(b, list(b)):
        found.append((v, w))
        b.clear()
    return x * 2, found


@reads(numbers)
def over_a_list_that_is_written_to(x, b):
    found = []
    for i, v in enumerate(b):
        b[-1] = i
        found.append(v)
    return x * 2, found


# What C makes of an iterator's items, as a text: whatever takes them, a list that has changed is seen.
MAKERS: dict[str, Callable[[list], Any]] = {
    "iter": iter, "enumerate": enumerate, "reversed": reversed, "zip": lambda b: zip(b, b), "a zip in an enumerate": lambda b: enumerate(zip(b, b)),
    "a zip of an iterator": lambda b: zip(iter(b), [1, 2, 3, 4, 5, 6]),
}  # fmt: skip


def left_of(it: Any) -> Any:
    for first in it:
        return first, list(it)
    return None


def put_in_the_middle(it: Any) -> list:
    found = [0, 0, 0]
    found[1:2] = it
    return found


def added(it: Any) -> list:
    found = [0]
    found += it
    return found


def through_methods(into: Any, name: str) -> Callable[[Any], Any]:
    def take(it: Any) -> Any:
        found = into()
        getattr(found, name)(it)
        return found

    return take


TAKERS: dict[str, Callable[[Any], Any]] = {
    "a slice": put_in_the_middle, "in place": added, "what is left": left_of, "list.extend": through_methods(list, "extend"),
    "deque.extend": through_methods(collections.deque, "extend"), "deque.extendleft": through_methods(collections.deque, "extendleft"),
    "a class of tuples": Items, "a class of lists": Collected, "deque": collections.deque, "copy": lambda it: list(copy.copy(it)),
    "length_hint": lambda it: operator.length_hint(it, -1), "countOf": lambda it: operator.countOf(it, 1), "contains": lambda it: operator.contains(it, 2),
    "chain": lambda it: list(itertools.chain([9], it)), "chain.from_iterable": lambda it: list(itertools.chain.from_iterable([[1], it, it])),
    "islice": lambda it: list(itertools.islice(it, 1, None)), "zip_longest": lambda it: list(itertools.zip_longest(it, "ab")),
    "cycle": lambda it: list(itertools.islice(itertools.cycle(it), 9)), "tee": lambda it: [list(v) for v in itertools.tee(it)],
    "pairwise": lambda it: list(itertools.pairwise(it)), "compress": lambda it: list(itertools.compress(it, [1, 0, 1, 1])),
    "starmap": lambda it: list(itertools.starmap(lambda *a: a, zip(it, "abcdefgh"))), "product": lambda it: list(itertools.product(it, "ab")),
    "permutations": lambda it: list(itertools.permutations(it, 2)), "groupby": lambda it: [(k, list(g)) for k, g in itertools.groupby(it, str)],
    "accumulate": lambda it: list(itertools.accumulate(map(str, it))), "filterfalse": lambda it: list(itertools.filterfalse(None, it)),
    "heapq.merge": lambda it: list(heapq.merge(map(str, it), "bcd")), "heapq.nsmallest": lambda it: heapq.nsmallest(2, it, key=str),
    "reduce": lambda it: functools.reduce(lambda a, b: f"{a}{b}", it, ""), "Counter": lambda it: sorted(collections.Counter(map(str, it)).items()),
    "dict": lambda it: dict(enumerate(it)), "OrderedDict": lambda it: collections.OrderedDict(zip("abcdefg", it)),
    "fromkeys": lambda it: dict.fromkeys(map(str, it)), "max": lambda it: max(it, key=str, default=None), "sorted": lambda it: sorted(it, key=str),
    "map of two": lambda it: list(map(lambda a, b: (a, b), it, it)), "a star": lambda it: (lambda a=None, *rest: rest)(*it), "in": lambda it: 7 in it,
}  # fmt: skip


def taking(maker: str, taker: str) -> Program:
    def make() -> Callable:
        into, take = MAKERS[maker], TAKERS[taker]
        return lambda x, b: (x * 2, repr(take(into(b))))

    steps = [Step(place, numbers) for place in range(len(LISTS))]
    return Program(f"{taker} of {maker}", make, steps, frozenset(range(len(LISTS))), min_graphs=0, breaks=True, backward=False)


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("taker", TAKERS)
def test_whatever_takes_the_items(taker: str, maker: str, twin: str) -> None:
    check(taking(maker, taker), twin)


def lengths(fn: Callable, items: Callable[[int], Any], all_lengths: Any) -> list[int]:
    """How many programs each call makes."""
    compiled, found, before = fineline.compile(fn, backend="eager"), [], LISTENERS.all
    for n in all_lengths:
        heard: list[str] = []
        LISTENERS.all = (*before, lambda event, heard=heard: heard.append(event.kind))
        x = t(n, 3)
        try:
            assert repr(compiled(x, items(n))) == repr(fn(x, items(n)))
        finally:
            LISTENERS.all = before
        found.append(heard.count("program"))
    return found


@pytest.mark.parametrize("fn", [one_by_one, to_the_second, the_shorter_one, tensors_together], ids=lambda fn: fn.__name__)
def test_what_is_not_read_may_be_any(fn: Callable) -> None:
    """Twenty lists that differ behind what is read have one program."""
    items = (lambda n: [t(k, 3) for k in range(n)]) if fn is tensors_together else (lambda n: list(range(n)))
    first = {tensors_together: 4}.get(fn, 4)
    assert sum(lengths(fn, items, range(first, 24))) == 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_list_readers(program: Program, twin: str) -> None:
    check(program, twin)
