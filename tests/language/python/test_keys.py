"""What becomes keys of a set or a dict: which of the objects are the same, or equal, decides how many there are."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t
from tests.soundness.mutations.membership import Equal

table = Table()
# Of three objects, those that a call is given.
GIVEN = ((0, 1, 2), (0, 1, 0), (0, 1, 1), (0, 0, 0), (0, 1, 2))


class Plain:
    def method(self):
        return 1


def updated(kind: Callable, a: Any, b: Any) -> Any:
    kept = kind(a)
    kept.update(b)
    return kept


def merged(a: Any, b: Any) -> Any:
    a |= b
    return a


def with_one_less(a: set, x: Any) -> set:
    a.remove(x)
    return a


MADE: dict[str, Callable] = {
    "set": set,
    "frozenset": frozenset,
    "display": lambda a: {*a},
    "displays": lambda a: {*a, a[0], *a[1:]},
    "updated_set": lambda a: updated(set, (), a),
    "union": lambda a: {a[0]}.union(a[1:]),
    "united": lambda a: {a[0]} | {*a[1:]},
    "written_to": lambda a: with_one_less(set(a), a[2]),
    "fromkeys": dict.fromkeys,
    "ordered_fromkeys": OrderedDict.fromkeys,
    "counter": Counter,
    "of_a_dict": lambda a: set({x: 1 for x in a}),
    "of_pairs": lambda a: dict([(x, 1) for x in a]),
    "spread": lambda a: {**{a[0]: 1}, **{a[1]: 2}, a[2]: 3},
    "updated_dict": lambda a: updated(dict, {a[0]: 1}, {a[1]: 2, a[2]: 3}),
    "updated_ordered": lambda a: updated(OrderedDict, {a[0]: 1}, {a[1]: 2, a[2]: 3}),
    "updated_default": lambda a: updated(partial(defaultdict, int), {a[0]: 1}, {a[1]: 2}),
    "or": lambda a: {a[0]: 1} | {a[1]: 2},
    "or_method": lambda a: {a[0]: 1}.__or__({a[1]: 2}),
    "merged": lambda a: merged({a[0]: 1}, {a[1]: 2}),
}  # fmt: skip
KINDS: dict[str, Callable] = {
    "objects": lambda n: Plain(),
    "tensors": lambda n: torch.ones(1),
    "functions": lambda n: lambda: n,
    "methods": lambda n: Plain().method,
    "pairs": lambda n: (1, Plain()),
    "equal": Equal,
    "equal_in_pairs": lambda n: (1, Equal(n)),
    "equal_in_sets": lambda n: frozenset([Equal(n)]),
}


def register(kind: str, how: str) -> None:
    objects = [KINDS[kind](n) for n in range(3)]

    def make() -> Any:
        # A copy: all of it is read behind a graph break as well.
        return lambda x, given: (x * len(MADE[how](given)), x + len(MADE[how]([*given])))

    make.__name__ = f"{how}_of_{kind}"
    args = lambda place: (t(place), [objects[n] for n in GIVEN[place]])  # noqa: E731
    table.program(calls=5, args=args, recompiles=(1, 2, 3, 4), breaks=True, backward=False)(make)


for how in MADE:
    for kind in KINDS if how in ("set", "counter") else ("objects", "tensors", "pairs", "equal_in_pairs"):
        register(kind, how)


# Other tensors at each call, of which none is another: what decides is only which of them are the same.
for how in MADE:

    @table.program(args=lambda place: (t(place), [torch.ones(1) for n in range(3)]), recompiles=(), max_graphs=1, backward=False)
    def of_other_tensors(how=how):
        return lambda x, given: (x * len(MADE[how]([*given])), given[1] in MADE[how](given))

    table.programs[-1].name += f"_{how}"


@table.snippet(calls=4, args=lambda place: (t(place), [Equal(n) for n in GIVEN[place]]), breaks=True, recompiles=(1, 2, 3))
def slices_of_objects(x, given):
    a, b, c = given
    return x + (slice(a, 1) == slice(c, 1)) + 2 * (slice(1, b) != slice(1, c)) + 4 * ([slice(a)].count(slice(b)))


def rotated(state: dict) -> None:
    held = state["held"]
    first = next(iter(held))
    held[first] = held.pop(first)


# Equal tensors, which are keys by identity: in what order they are is guarded, and put back, without asking whether they are equal.
for kind, size in (("one_number", 1), ("several", 3)):

    @table.program(calls=4, change=dict.fromkeys((1, 2), rotated), recompiles=(1, 2, 3))
    def the_order_of_tensors(size=size):
        held = {torch.zeros(size): 1.0, torch.zeros(size): 2.0, torch.zeros(size + 1): 3.0}
        state = {"held": held}

        def fn(x):
            for number in held.values():
                x = x * 2 + number
            return x, list(held.values())

        return fn, state

    table.programs[-1].name += f"_of_{kind}"

    @table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
    def a_tensor_put_back(size=size):
        first, second, third = torch.zeros(size), torch.zeros(size), torch.zeros(size + 1)
        held = {first: 1.0, second: 2.0, third: 3.0}

        def fn(x):
            before = list(held.values())
            held[first] = held.pop(first)
            first.data_ptr()
            return x.sin(), before, list(held.values())

        return fn, {"held": held}

    table.programs[-1].name += f"_of_{kind}"


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_keys(program: Program, twin: str) -> None:
    check(program, twin)
