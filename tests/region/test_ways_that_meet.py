"""Ways through the code that part at a graph break and meet at a later one: what is behind it is captured once."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import Program, Table, check, t

table = Table()
WAYS = list(itertools.product((-1.0, 1.0), repeat=4))


def signs(place: int) -> tuple[torch.Tensor]:
    return (torch.tensor([*WAYS[place % 16], 2.0]),)


ANY: dict[str, Any] = {"calls": 20, "args": signs, "breaks": True, "recompiles": tuple(range(20)), "backward": False}


@table.snippet(**ANY)
def of_numbers(x):
    out = x
    for i in range(4):
        k = max(0.5, x[i].item())
        out = out * k + i
    return out


@table.snippet(**ANY)
def of_tensors_that_are_known(x):
    made = torch.tensor([1, 2]) if x[0] > 0 else torch.tensor([3, 4])
    k = max(0.5, x[1].item())
    n = int(made[0])
    other = torch.tensor([n, 1]) if x[2].item() > 0 else made
    k += max(0.5, x[3].item())
    return x * n * k, [int(v) for v in other], made


@table.snippet(**ANY)
def of_containers(x):
    held, seen = {}, []
    for i in range(4):
        if x[i].item() > 0:
            held[i] = x + i
        else:
            seen.append(x * i)
        fineline.graph_break()
        x = x + len(held) + 2 * len(seen)
    return x, held, seen


@table.snippet(**ANY)
def of_objects_that_may_be_one(x):
    a, b = [1.0], [2.0]
    if x[0].item() > 0:
        b = a
    fineline.graph_break()
    a.append(3.0)
    x = x + len(b)
    if x[1].item() > 0:
        a = b
    fineline.graph_break()
    return x * len({id(v) for v in (a, b)}), a is b, a, b


@table.snippet(**ANY)
def of_iterators(x):
    numbers = iter(range(8))
    for i in range(4):
        if x[i].item() > 0:
            next(numbers)
        fineline.graph_break()
        x = x + next(numbers)
    return x, list(numbers)


@table.snippet(**ANY)
def of_what_is_raised(x):
    out = []
    for i in range(4):
        try:
            n = x[i].item()
            if n < 0:
                raise ValueError(n)
            out.append(x + n)
        except ValueError as e:
            out.append(x - e.args[0])
        fineline.graph_break()
    return out


@fineline.disable
def risky(x: torch.Tensor, at: int) -> float:
    if x[at] < 0:
        raise ValueError(at)
    return 2.0


@table.snippet(**ANY)
def of_what_graph_breaks_raise(x):
    out = x
    for i in range(4):
        out = out * 2 if x[i].item() > 0 else out + 1
        try:
            out = out + risky(x, 3 - i)
        except ValueError:
            out = out - 1
    return out


@table.snippet(**ANY)
def of_gradient_modes(x):
    y = x.clone().requires_grad_()
    with torch.set_grad_enabled(x[0].item() > 0):
        fineline.graph_break()
        z = y * 2 + 1
        with torch.set_grad_enabled(x[1].item() > 0):
            fineline.graph_break()
            z = z + y
    fineline.graph_break()
    return z.requires_grad, (z * 3).requires_grad, z.detach()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_ways_that_meet(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("dynamic", [None, True])
def test_each_piece_is_captured_once(dynamic: bool | None) -> None:
    def fn(x, y):
        for i in range(8):
            k = max(0.5, x[i].item())
            # Enough for graphs of their own.
            for _ in range(20):
                y = (y * k).sin() + y
        return y

    compiled, heard, before = fineline.compile(fn, backend="eager", dynamic=dynamic), [], LISTENERS.all
    LISTENERS.all = (*before, lambda event: heard.append(event.kind))
    try:
        for place in range(40):
            x = torch.randn(8, generator=torch.Generator().manual_seed(place))
            assert torch.equal(compiled(x, t(0)), fn(x, t(0)))
    finally:
        LISTENERS.all = before
    # Each of the eight pieces: once for the very number, and for those on either side of the bound; 135 where the ways do not meet.
    assert heard.count("program") <= 3 * 8 + 1
