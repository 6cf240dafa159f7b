"""Many objects that one call writes, or tells apart: in a later call two of them may be one, and telling so stays linear."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from fineline.api import regions
from tests.oracle import Program, Table, check, t

table = Table()


class Plain:
    def __init__(self, v: int = 0) -> None:
        self.v = v


class Slotted:
    __slots__ = ("v",)

    def __init__(self, v: int = 0) -> None:
        self.v = v


def set_attributes(x, objects):
    for i, o in enumerate(objects):
        o.v += i
    return x + sum([o.v for o in objects])


def write_the_first(x, objects):
    objects[0].v += 1
    return x + sum([o.v for o in objects])


def append(x, lists):
    for each in lists:
        each.append(x.shape[0])
    return x * len(lists[-1])


def set_keys(x, dicts):
    for i, each in enumerate(dicts):
        each[i] = i
    return x * len(dicts[0])


def add(x, sets):
    for i, each in enumerate(sets):
        each.add(i)
    return x * len(sets[0])


def add_in_place(x, tensors):
    for i, each in enumerate(tensors):
        each.add_(i)
    return x + sum(tensors)


def set_grads(x, tensors):
    for each in tensors:
        each.grad = torch.ones(3, 4)
    return x + tensors[0].grad


def in_a_set_made_here(x, objects):
    seen: set[Any] = set()
    for o in objects:
        if o in seen:
            x = x * 2
        seen.add(o)
    return x + len(seen)


def as_keys_of_a_dict_made_here(x, objects):
    places: dict[Any, int] = {}
    for i, o in enumerate(objects):
        places[o] = i
    return x + sum(places.values())


def lists_compared(x, objects):
    return x + (objects == list(reversed(objects)))


def counted(x, objects):
    return x + len(set(objects)) + objects.count(objects[0])


USES: dict[str, tuple[Callable[..., Any], Callable[[], Any]]] = {
    "attributes": (set_attributes, Plain),
    "slots": (set_attributes, Slotted),
    "one_of_many": (write_the_first, Plain),
    "lists": (append, list),
    "deques": (append, collections.deque),
    "dicts": (set_keys, dict),
    "ordered_dicts": (set_keys, collections.OrderedDict),
    "sets": (add, set),
    "tensors": (add_in_place, lambda: t(0)),
    "gradients": (set_grads, lambda: t(0, 3, 4)),
    "a_set_made_here": (in_a_set_made_here, Plain),
    "a_dict_made_here": (as_keys_of_a_dict_made_here, Plain),
    "lists_compared": (lists_compared, Plain),
    "counted": (counted, Plain),
}


def objects(make: Callable[[], Any], n: int, place: int) -> list[Any]:
    """``n`` objects; from the third call on two of them are one, at other places in each."""
    made = [make() for _ in range(n)]
    if place > 1:
        a, b = ((0, n - 1), (n // 2, n // 2 - 1), (1, 0), (n - 1, n - 2))[place % 4]
        made[a] = made[b]
    return made


for name, (use, make) in USES.items():
    for n in (2, 12):

        def program(use: Any = use) -> Any:
            return lambda x, given: use(x, given)

        program.__name__ = f"{name}_{n}"
        table.program(
            calls=7, args=lambda place, make=make, n=n: (t(place), objects(make, n, place)), recompiles=(0, 2, 3, 4, 5), backward=False
        )(program)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_aliases(program: Program, twin: str) -> None:
    check(program, twin)


def compared(use: Callable[..., Any], make: Callable[[], Any], n: int) -> int:
    """How many registers the guards on differing objects name in a program for ``n`` objects."""
    compiled = fineline.compile(lambda x, given: use(x, given), backend="eager")
    compiled(t(), [make() for _ in range(n)])
    region = regions()[-1]
    return sum([len(reg) for segment in region.segments() for op, _, _, payload in segment.steps if op == "distinct" for reg in payload])


@pytest.mark.parametrize("name", [name for name in USES if name != "tensors"])
def test_guards_on_aliases_are_linear(name: str) -> None:
    few, many = compared(*USES[name], 40), compared(*USES[name], 80)
    assert 40 <= few and many <= 2.1 * few
