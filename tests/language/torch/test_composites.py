"""Composite operators that libraries write in Python: the sizes of what they give follow from those of their arguments, or from numbers in tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

LIBRARY = torch.library.Library("tests_composites", "FRAGMENT")
table = Table()
RUNS: list[str] = []


def define(schema: str, fn: Callable[..., Any], key: str = "CompositeImplicitAutograd") -> None:
    LIBRARY.define(schema)
    name = schema.partition("(")[0]
    LIBRARY.impl(name, fn, key)


def counting(x: torch.Tensor) -> torch.Tensor:
    RUNS.append("once")
    return x.abs().amax(-1)


define("absmax(Tensor x) -> (Tensor, Tensor)", lambda x: (x.abs().amax(-1), torch.zeros(x.shape[0], dtype=torch.int32)))
define("halves(Tensor x, int n) -> Tensor", lambda x, n: x[:, : x.shape[1] // n].contiguous())
define("counted(Tensor x) -> Tensor", counting)
define("turned(Tensor x) -> (Tensor, Tensor)", lambda x: ((x.t() * 2)[1:], x.softmax(0).view(-1)))
define("counted_too(Tensor x) -> Tensor", lambda x: counting(x.sin()))
define("nested(Tensor x) -> Tensor", lambda x: torch.ops.tests_composites.absmax(x)[0] + 1)
define("padded(Tensor x) -> Tensor", lambda x: torch.nn.functional.pad(x, (0, x.dim())))
define("products(Tensor x, Tensor y) -> Tensor", lambda x, y: (x @ y.T).softmax(-1))
define("positive(Tensor x) -> Tensor", lambda x: x[x > 0])
define("nonzero(Tensor x) -> Tensor", lambda x: x.relu().nonzero())
define("by_item(Tensor x) -> Tensor", lambda x: x.new_zeros(1 + int(x.abs().sum().item()) % 3))
define("by_truth(Tensor x) -> Tensor", lambda x: x[:1] if x.sum() > 0 else x)
define("by_list(Tensor x) -> Tensor", lambda x: x.new_zeros(1 + int(sum(x.detach().abs().flatten().tolist())) % 3))
define("by_numpy(Tensor x) -> Tensor", lambda x: x.new_zeros(1 + int(abs(x.detach().numpy()).sum()) % 3))
define("by_packing(Tensor x) -> Tensor", lambda x: torch._pack_padded_sequence(x.new_ones(3, 2, 1), 1 + (x[0, :2] > 0).long().sort(descending=True)[0], False)[0])
define("by_equality(Tensor x) -> Tensor", lambda x: x[:1] if torch.equal(x, x.abs()) else x)
define("by_sparse(Tensor x) -> Tensor", lambda x: x.relu().to_sparse().values())
define("in_c(Tensor x) -> Tensor", lambda x: x.new_zeros(1 + int(x.detach().abs().sum()) % 3), "CPU")
define("many(Tensor x) -> Tensor[]", lambda x: [x + 1, x + 2])


@table.snippet(max_graphs=1)
def the_number_of_elements(x):
    scale, zero = torch.ops.tests_composites.absmax(x)
    if x.shape[0] != scale.numel():
        raise AssertionError
    if zero is not None and zero.numel() > 0:
        x = x - zero[:, None]
    return x / scale[:, None]


@table.snippet(max_graphs=1)
def sizes_and_strides(x):
    y = torch.ops.tests_composites.halves(x, 2)
    return y * y.shape[1] + len(y) + y.size(0) + y.stride(0) + y.dim()


@table.snippet(args=lambda place: (t(place, place + 3, 4),), calls=4, recompiles=(1,), max_graphs=2)
def strides_of_other_sizes(x):
    """The operators of the composite run on zeros, to see how their kernels lay out the result."""
    y, z = torch.ops.tests_composites.turned(x)
    w = torch.ops.tests_composites.nested(y)
    return y * y.stride(1), y.is_contiguous(), z.is_contiguous(), w + 1 if w.is_contiguous() else w


@table.snippet(args=lambda place: (t(place, place + 3, 4, grad=True),), calls=4, recompiles=(1,), max_graphs=2)
def strides_with_gradients(x):
    y, z = torch.ops.tests_composites.turned(x * 2)
    return y * y.stride(1), z * 2 if z.is_contiguous() else z


@table.snippet(max_graphs=1)
def one_within_another(x):
    y = torch.ops.tests_composites.nested(x)
    return y.view(1, y.shape[0]) * y.numel()


@table.snippet(max_graphs=1)
def others(x):
    y = torch.ops.tests_composites.padded(x)
    z = torch.ops.tests_composites.products(x, y[:, : x.shape[1]])
    return z.sum(0) * z.numel() + y.shape[-1]


@table.snippet(max_graphs=1, grad=True)
def of_its_gradients(x):
    y = torch.ops.tests_composites.halves(x * 2, 2)
    return y.sum() * y.numel()


@table.program(args=lambda i: (torch.arange(6.0).reshape(2, 3) - i,), breaks=True, calls=5, min_graphs=0, recompiles=range(5))
def selected() -> Any:
    return lambda x: x.sum() + torch.ops.tests_composites.positive(x).numel() + len(torch.ops.tests_composites.nonzero(x))


@table.program(args=lambda i: (torch.arange(6.0).reshape(2, 3) - i,), breaks=True, calls=5, min_graphs=0, recompiles=range(5))
def sized_by_numbers() -> Any:
    def fn(x):
        ops = torch.ops.tests_composites
        return x.sum() + ops.by_item(x).numel() + ops.by_truth(x).shape[0] + ops.by_list(x).numel() + ops.by_numpy(x).numel() + ops.in_c(x).numel()

    return fn


for each in ("by_packing", "by_equality", "by_sparse"):

    def alone(each: str = each) -> Any:
        return lambda x: x.sum() + getattr(torch.ops.tests_composites, each)(x).shape[0]

    alone.__name__ = each
    table.program(args=lambda i: (torch.arange(6.0).reshape(2, 3) - i,), breaks=True, calls=5, min_graphs=0, recompiles=range(5))(alone)


@table.program(breaks=True, min_graphs=0)
def several() -> Any:
    return lambda x: len(torch.ops.tests_composites.many(x)) + x


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_composites(program: Program, twin: str) -> None:
    check(program, twin)


def test_its_code_runs_once_at_a_capture() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        y = torch.ops.tests_composites.counted(x)
        return y.reshape(y.numel(), 1)

    RUNS.clear()
    compiled = fineline.compile(fn, backend="eager")
    assert compiled(torch.ones(2, 3)).shape == (2, 1) and RUNS == ["once"]


def test_a_profiler_hears_of_its_calls() -> None:
    heard = []
    sys.setprofile(lambda frame, event, arg: heard.append(getattr(arg, "__name__", "")) if event == "c_call" else None)
    try:
        torch.ops.tests_composites.by_list(torch.ones(2, 3))
        result = fineline.compile(lambda x: torch.ops.tests_composites.by_list(x).numel(), backend="eager")(torch.ones(2, 3))
    finally:
        sys.setprofile(None)
    assert result == 1 and heard.count("tolist") == 2


def test_the_code_of_a_composite_does_not_run_to_find_strides() -> None:
    def step(x: torch.Tensor) -> Any:
        y = torch.ops.tests_composites.counted_too(x)
        return y + y.stride(0) if y.is_contiguous() else y

    compiled = fineline.compile(step, backend="eager", dynamic=True)
    RUNS.clear()
    x = torch.randn(3, 4)
    found = compiled(x)
    # Once on fakes, and once in the program.
    assert len(RUNS) == 2 and torch.equal(found, step(x)) and len(fineline.report(compiled).graphs) == 1
