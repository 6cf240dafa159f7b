"""Functions of libraries that do something else while they are compiled: captured code does what eager calls do."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

capturing = pytest.importorskip("transformers.utils.output_capturing")
table = Table()


def collected(active: Any, x: Any) -> None:
    found = active.get()
    if found is not None:
        found.append(x)


@table.program(max_graphs=1, calls=4)
def collectors_in_each_other() -> Any:
    active = capturing.CompileableContextVar("active")

    def inner(x):
        mine: list[Any] = []
        token = active.set(mine)
        try:
            x = x.sin()
            collected(active, x)
        finally:
            active.reset(token)
        return x, mine

    def fn(x):
        mine: list[Any] = []
        collected(active, x)
        token = active.set(mine)
        try:
            collected(active, x)
            y, inside = inner(x)
            collected(active, y)
            y, more = inner(y)
            collected(active, y)
        finally:
            active.reset(token)
        collected(active, y)
        return y, mine, inside, more

    return fn


@table.program(breaks=True, calls=4)
def collectors_across_breaks() -> Any:
    active = capturing.CompileableContextVar("active")

    def fn(x):
        mine: list[Any] = []
        for k in range(2):
            token = active.set(mine)
            try:
                x = x + k
                print("between")
                collected(active, x)
                if k:
                    raise ValueError
            except ValueError:
                x = x * 2
            finally:
                active.reset(token)
        return x, mine

    return fn


@table.program(max_graphs=1)
def module_that_was_exported():
    exported = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU()), (t(0),)).module()
    return lambda x: exported(x) * 2 + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_libraries(program: Program, twin: str) -> None:
    check(program, twin)


def test_the_row() -> None:
    assert fineline.why(capturing.CompileableContextVar.set).verb == "substitute"
    assert fineline.why(capturing.CompileableContextVar.get).verb == "trace"
