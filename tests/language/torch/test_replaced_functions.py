"""Functions and methods of PyTorch's that somebody's wrapper has replaced, as profilers do: the code of the wrapper runs once a call."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fineline
from tests.oracle import t

PLACES: dict[str, tuple[Any, str, Callable[[Tensor], Tensor]]] = {
    "a function in C": (torch, "sin", lambda x: torch.sin(x)),
    "an operator with an infix form": (torch, "matmul", lambda x: torch.matmul(x, x)),
    "a function with another name in C": (torch.linalg, "norm", lambda x: torch.linalg.norm(x)),
    "a function of a module in C": (F, "linear", lambda x: F.linear(x, x)),
    "the function that another name is of": (torch._C._nn, "linear", lambda x: F.linear(x, x)),
    "a function in Python": (F, "relu", lambda x: F.relu(x)),
    "what a function in Python calls": (torch, "relu", lambda x: F.relu(x)),
    "a method": (Tensor, "add", lambda x: x.add(1)),
    "a method that is called as a function": (Tensor, "sub", lambda x: Tensor.sub(x, 1)),
    "a method in Python": (Tensor, "norm", lambda x: x.norm()),
    "a special method": (Tensor, "__mul__", lambda x: x * 2),
}


def counted(fn: Callable, calls: list[str]) -> Callable:
    @functools.wraps(fn)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(fn.__name__)
        return fn(*args, **kwargs)

    return wrapper


def test_an_operator_behind_a_wrapper_that_nobody_needs_raises() -> None:
    """As torch_geometric wraps index_select. A compiler drops the operator, and the user's code handles its error."""

    def fn(x: Tensor, i: Tensor) -> tuple[Tensor, str]:
        try:
            torch.index_select(x, 0, i)
        except IndexError:
            return x - 1, "out"
        return x * 2, "in"

    for name, replaced in (("index_select", True), ("sin", False)):
        with mock.patch.object(torch, name, counted(getattr(torch, name), [])):
            compiled = fineline.compile(fn, backend="aot_eager")
            for n in (1, 2, 7, 1, 9, 2):
                expected, found = fn(t(0, 4), torch.tensor([n])), compiled(t(0, 4), torch.tensor([n]))
                assert torch.equal(expected[0], found[0]) and expected[1] == found[1], (n, replaced)
            assert len(fineline.report(compiled).graphs) == 1 and not fineline.report(compiled).breaks


@pytest.mark.parametrize("place", PLACES)
def test_a_wrapper_runs_as_often_as_in_eager_code(place: str) -> None:
    owner, name, fn = PLACES[place]
    calls: list[str] = []
    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend)
    for replaced in (True, True, True, False, False):
        with mock.patch.object(owner, name, counted(getattr(owner, name), calls)) if replaced else contextlib.nullcontext():
            runs = []
            for run in (fn, compiled):
                calls.clear()
                runs.append((run(t(0, 3, 3)), list(calls)))
        assert torch.equal(runs[0][0], runs[1][0]) and runs[0][1] == runs[1][1]
    assert graphs and all([sum(node.op.startswith("call") for node in gm.graph.nodes) == 1 for gm in graphs])
