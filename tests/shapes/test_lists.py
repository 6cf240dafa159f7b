"""Lists of numbers of which some vary: looped over, unpacked, summed, copied; and numbers that are written back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, check, t
from tests.shapes.varied import Varied, from_the_start

table = Varied()


def sized(reads: Callable[..., Any], recompiles: Any = (1,)) -> Callable[[], Any]:
    """A program that reads a list of numbers, one of which is another at each call."""

    def make() -> Any:
        sizes = [3, 4, 2]
        return lambda x: reads(x, sizes), sizes

    make.__name__ = reads.__name__
    changes = {p: lambda sizes, p=p: sizes.__setitem__(1, 4 + p) for p in range(6)}
    table.program(calls=6, args=lambda p: (t(p),), change=changes, recompiles=recompiles)(make)
    return make


def fixing(reads: Callable[..., Any]) -> Callable[[], Any]:
    return sized(reads, range(1, 6))


@sized
def a_list_that_is_looped_over(x, sizes):
    made = []
    for n in sizes:
        x = x + n
        made.append(torch.ones(n))
    return x, made, [n * 2 for n in sizes], len(sizes)


@sized
def a_list_beside_another(x, sizes):
    for i, (n, k) in enumerate(zip(sizes, [1.5, 2, 3])):
        x = x * n + i * k
    return x, list(map(lambda n: n + 1, sizes))


@sized
def a_list_unpacked_and_summed(x, sizes):
    a, b, c = sizes
    return x * a + b - c, sum(sizes) + max(sizes), min(sizes), torch.zeros(b, c)


# What an iterator gives behind a graph break is guarded one by one.
@fixing
def an_iterator_over_a_list(x, sizes):
    numbers = iter(sizes)
    first = next(numbers)
    fineline.graph_break()
    return x * first * 2, numbers, type(numbers), [x + n for n in numbers], next(numbers, None)


@sized
def a_list_that_is_looped_over_again(x, sizes):
    return [x + n for n in sizes], [x * n for n in sizes], sizes, sizes[1]


# Read as a whole, after a number in it has been a symbol.
@fixing
def a_list_that_is_looped_over_and_copied(x, sizes):
    return [x + n for n in sizes], [x * n for n in reversed([*sizes])], sizes


@fixing
def a_list_that_is_indexed_and_copied(x, sizes):
    return x + sizes[1], [x * n for n in [*sizes]]


@table.program(calls=6, args=lambda p: (t(p),), change={p: lambda held, p=p: held.set(4 + p) for p in range(6)}, recompiles=(1,))
def numbers_put_back():
    class Held:
        def __init__(self):
            self.attribute, self.items, self.keys = 4, [4, 0], {"n": 4}

        def set(self, n):
            self.attribute, self.items[0], self.keys["n"] = n, n, n

    held = Held()

    def fn(x):
        y = x + held.attribute + held.items[0] + held.keys["n"]
        # As it was at the capture in which they become symbols.
        held.attribute = held.items[0] = held.keys["n"] = 5
        return y

    return fn, held


PARAMS = [pytest.param(p, id=p.name) for p in table.programs]


@pytest.mark.parametrize("program", PARAMS)
def test_program(program: Program) -> None:
    check(program, "captured")


@pytest.mark.parametrize("program", PARAMS)
def test_program_dynamic_from_the_start(program: Program) -> None:
    check(from_the_start(program), "dynamic")
