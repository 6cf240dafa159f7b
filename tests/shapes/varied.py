"""What programs over varying sizes share: six sizes, and a table whose programs are called with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

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
