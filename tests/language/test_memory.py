"""Tensors that are given the memory of others, or are themselves what operators give: through AOTAutograd too, whatever twins run."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


# -- .data -----------------------------------------------------------------------------------------------------------
@table.snippet(breaks=True, backward=False)
def other_data(x):
    y = x * 2
    y.data = y.data + 100
    return y + 1


@table.snippet(breaks=True, backward=False)
def data_by_other_names(x):
    y, z = x * 2, x * 3
    setattr(y, "data", x + 1)
    z.__setattr__("data", x - 1)
    w = x.clone()
    torch._C.TensorBase.data.__set__(w, z)
    return y + 1, z * 2, w


@table.snippet(breaks=True, backward=False)
def data_of_another_kind(x):
    y = x * 2
    y.data = x.double().t()
    return y + 1, y.dtype, y.shape, y.stride(), y.is_contiguous()


@table.snippet(breaks=True, backward=False)
def data_swapped(x, y):
    a, b = x * 2, y * 3
    a.data, b.data = b.data, a.data
    x.data, y.data = y.data, x.data
    a.data, y.data = y.data, a.data
    return a + 1, b * 2, x - 1, y


@table.snippet(breaks=True, backward=False)
def data_that_is_written_afterwards(x):
    y = x * 2
    y.data = x
    y.add_(1)
    z = x * 3
    z.data = y[1:]
    z.mul_(2)
    return y, z, x.sum()


@table.snippet(breaks=True, grad=True)
def data_with_a_history(x):
    y = x * 2
    y.data = y.data + 100
    z = y * y
    z.data = z.data.clone()
    return z + 1, y.requires_grad, z.grad_fn.name()


# What changes nothing ends no graph.
@table.snippet(max_graphs=1)
def data_of_its_own(x):
    y = x * 2
    y.data = y
    return y + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_memory(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("through", ["aot", "aot_fake", "aot_dynamic"])
@pytest.mark.parametrize("program", table.programs, ids=str)
def test_memory_through_aot_autograd(program: Program, through: str) -> None:
    check(program, through)


def swapped(x: Tensor) -> Any:
    a, b = x * 2, x * 3
    a.data, b.data = b.data, a.data
    return a + 1, b + 2


def test_data_swapped_behind_inductor() -> None:
    fn = fineline.compile(swapped, backend="inductor")
    for place in range(3):
        for ours, eager in zip(fn(t(place)), swapped(t(place)), strict=True):
            torch.testing.assert_close(ours, eager)


def views(x: Tensor) -> Any:
    a = x * 2
    return a, a.detach(), a[:], a.view_as(a), a.t().t(), a.t()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_tensor_and_its_views_are_several_objects(backend: str) -> None:
    fn = fineline.compile(views, backend=backend)
    for place in range(3):
        given = fn(t(place))
        assert len(set(map(id, given))) == len(given) == 6
        assert len({r.untyped_storage()._cdata for r in given}) == 1
        given[0].add_(1)
        for ours, eager in zip(given, views(t(place)), strict=True):
            torch.testing.assert_close(ours, eager + 1)
