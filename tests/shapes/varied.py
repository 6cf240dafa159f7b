"""What programs over varying sizes share: six sizes, and a table whose programs are called with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

N = (5, 7, 12, 4, 30, 8)
SMALL = (4, 1, 0, 6, 1, 0, 9)
Arguments = Callable[[int], tuple]


def growing(n: int) -> tuple:
    return (t(n, n, 4), n)


def rows(n: int) -> tuple:
    return (t(n, n, 4),)


class Varied(Table):
    """Programs that are called with each of ``N``; unless told, with a tensor of that many rows. Only the second call captures again."""

    def varied(self, args: Arguments = rows, **marks: Any) -> Any:
        return self.snippet(calls=len(N), args=lambda place: args(N[place]), **{"recompiles": (1,), **marks})

    def varied_program(self, args: Arguments = rows, **marks: Any) -> Any:
        return self.program(calls=len(N), args=lambda place: args(N[place]), **{"recompiles": (1,), **marks})


def from_the_start(program: Program) -> Program:
    """The program where all is symbolic from the first call: any later call may capture again."""
    return dataclasses.replace(program, recompiles=frozenset(range(1, len(program.steps))))


def both_ways(table: Table) -> tuple[Callable, Callable]:
    """The tests of a table: each program with what varies found call by call, and with all symbolic from the first."""

    @pytest.mark.parametrize("program", table.programs, ids=str)
    def test_program(program: Program) -> None:
        check(program, "captured")

    @pytest.mark.parametrize("program", table.programs, ids=str)
    def test_program_dynamic_from_the_start(program: Program) -> None:
        check(from_the_start(program), "dynamic")

    return test_program, test_program_dynamic_from_the_start


class Counting:
    """A backend that counts the graphs that it is given, and those that run."""

    def __init__(self) -> None:
        self.made = self.ran = 0

    def __call__(self, gm: torch.fx.GraphModule, examples: list) -> Callable:
        self.made += 1

        def run(*args: Any) -> Any:
            self.ran += 1
            return gm.forward(*args)

        return run


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def graphs_of_each_call(fn: Callable, calls: list[tuple]) -> tuple[list[int], list[int]]:
    """Runs ``fn`` compiled, and eagerly for comparison. -> how many graphs were new in each call, and how many ran."""
    backend = Counting()
    fast = fineline.compile(fn, backend=backend)
    made, ran = [], []
    for args in calls:
        before = backend.made, backend.ran
        assert same(fast(*args), fn(*args))
        made.append(backend.made - before[0])
        ran.append(backend.ran - before[1])
    return made, ran
