"""Loops that read items at the number of the iteration, with graph breaks in them: the iterations share their programs."""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any

import pytest

import fineline
from tests.oracle import Program, Table, check
from tests.region.test_loops_over_iterables import ANY, programs, step

table = Table()


class Dataset:
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def of_a_list(b, total=0.0):
    for i in range(len(b)):
        total = step(b[i], total)
    return total


def from_the_end(b, total=0.0):
    for i in range(len(b)):
        total = step(b[-1 - i], total)
    return total


def over_a_reversed_range(b, total=0.0):
    for i in reversed(range(len(b))):
        total = step(b[i], total)
    return total


def over_every_other(b, total=0.0):
    for i in range(0, len(b), 2):
        total = step(b[i], total)
    return total


def of_a_tuple(b, total=0.0):
    b = tuple(b)
    for i in range(len(b)):
        total = step(b[i], total)
    return total


def of_a_deque(b, total=0.0):
    b = collections.deque(b)
    for i in range(len(b)):
        total = step(b[i], total)
    return total


def of_a_dict(b, total=0.0):
    d = dict(enumerate(b))
    for i in range(len(d)):
        total = step(d[i], total)
    return total


def of_two_lists(b, total=0.0):
    for i in range(len(b)):
        total = step(b[i] + b[len(b) - 1 - i], total)
    return total


def at_half_the_number(b, total=0.0):
    for i in range(len(b)):
        total = step(b[i // 2], total)
    return total


def in_a_while_loop(b, total=0.0):
    i = 0
    while i < len(b):
        total = step(b[i], total)
        i += 1
    return total


def of_a_list_in_a_list(b, total=0.0):
    rows = [b[:2]] * len(b)
    for i in range(len(rows)):
        for j in range(2):
            total = step(rows[i][j], total)
    return total


def by_names_in_a_list(b, total=0.0):
    named = {f"k{i}": x for i, x in enumerate(b)}
    names = list(named)
    for i in range(len(names)):
        total = step(named[names[i]], total)
    return total


def that_write_a_list(b):
    out = [0.0] * len(b)
    for i in range(len(b)):
        out[i] = step(b[i])
    return out


def of_an_object(b, total=0.0):
    data = Dataset(b)
    for i in range(len(data)):
        total = step(data[i], total)
    return total


def by_a_function(b, total=0.0):
    for i in range(len(b)):
        total = step(operator.getitem(b, i), total)
    return total


SHARED = (
    of_a_list, from_the_end, over_a_reversed_range, over_every_other, of_a_tuple, of_a_deque, of_a_dict, of_two_lists, at_half_the_number,
    in_a_while_loop, of_a_list_in_a_list, by_names_in_a_list, that_write_a_list, of_an_object, by_a_function,
)  # fmt: skip
for fn in SHARED:
    table.snippet(**ANY)(fn)


@table.snippet(**ANY)
def whose_index_goes_round(b):
    total = 0.0
    for i in range(3 * len(b)):
        total = step(b[i % 3], total)
    return total


@table.snippet(**ANY)
def whose_index_leaves_the_list(b):
    total = 0.0
    for i in range(len(b) + 2):
        try:
            x = b[i]
        except IndexError as e:
            return total, str(e), i
        total = step(x, total)
    return total


@table.snippet(**ANY)
def that_change_the_list(b):
    b, total = list(b), 0.0
    for i in range(len(b)):
        total = step(b[i], total)
        b[-1] = b[i] * 2
    return total, b[-1]


@pytest.mark.parametrize("fn", SHARED, ids=lambda fn: fn.__name__)
def test_the_programs_do_not_grow_with_the_iterations(fn: Callable) -> None:
    counts: list[Any] = [sum(programs(fineline.compile(fn, backend="eager"), fn, [n])) for n in (20, 40)]
    assert counts[0] == counts[1] < 20


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_loops_by_index(program: Program, twin: str) -> None:
    check(program, twin)
