"""A graph that was compiled serves again where the function makes the same, or gives less of it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.oracle import Program, Table, check, t

table = Table()


@table.program(max_graphs=1, recompiles=(1,), change={1: lambda state: state.update(all=False)}, grad=True)
def one_output_less():
    layers, state = [t(k, 4, 4, grad=True) for k in range(3)], {"all": True}

    def fn(x):
        got = []
        for layer in layers:
            x = (x @ layer).relu()
            got.append(x)
        return x * 2, tuple(got if state["all"] else got[:-1])

    return fn, state


@table.program(max_graphs=1, recompiles=(1,), change={1: lambda state: state.update(all=False)})
def outputs_in_another_order():
    state = {"all": True}

    def fn(x):
        a, b = x + 1, x * 2
        c = a + b
        return (a, b, c) if state["all"] else (c, b)

    return fn, state


@table.program(max_graphs=2, recompiles=(1,), change={1: lambda state: state.update(all=True)})
def one_output_more():
    state = {"all": False}

    def fn(x):
        a = x + 1
        b = a * 2
        return (b, a) if state["all"] else (b,)

    return fn, state


@table.program(max_graphs=2, recompiles=(1,), change={1: lambda state: state.update(all=False)})
def what_nobody_needs_is_not_computed():
    state = {"all": True}

    def fn(x):
        a, b = x + 1, x * 2
        return (a, b) if state["all"] else a

    return fn, state


@table.program(max_graphs=1, recompiles=(1,), change={1: lambda state: state.update(all=False)})
def outputs_made_anew():
    state = {"all": True}

    def fn(x):
        with torch.inference_mode():
            a = x + 1
            b = a * 2
            c = b - 1
        return [a, b, c] if state["all"] else [b, c]

    return fn, state


@table.program(max_graphs=1, recompiles=(1,), change={1: lambda state: state.update(all=False)})
def an_output_that_is_written_to():
    state = {"all": True}

    def fn(x):
        a = x + 1
        a.add_(1)
        b = a.view(-1)
        c = b * 2
        return (a, b, c) if state["all"] else (c, a)

    return fn, state


@table.program(breaks=True, recompiles=(1,), change={1: lambda state: state.update(ready=True)})
def a_list_from_before_a_break():
    state, layer = {"ready": False}, nn.Linear(4, 4)

    def fn(x):
        got = []
        if not state["ready"]:
            print("not yet")
        for _ in range(3):
            x = layer(x).relu()
            got.append(x)
        return x * 2, tuple(got[:-1])

    return fn, state


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_graphs_again(program: Program, twin: str) -> None:
    check(program, twin)
