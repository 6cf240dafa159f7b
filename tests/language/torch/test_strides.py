"""Strides that Python code reads, of what is passed in and of what operators give: above all those of dimensions of one element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
ALL = ("captured", "borders", "reference", "limit1", "fake", "dynamic", "strict", "aot", "aot_fake", "aot_dynamic", "counted")
UNCOUNTED = tuple([twin for twin in ALL if twin != "counted"])


def images(place: int) -> tuple:
    """One channel, or one row: channels last, contiguous, and with a stride that means nothing."""
    last = t(place, 2, 1, 4, 4).to(memory_format=torch.channels_last)
    return ([last, t(1, 2, 1, 4, 4), t(2, 2, 1, 4, 4).as_strided((2, 1, 4, 4), (16, 99, 4, 1)), t(3, 3, 1, 5, 4), last][place],)


def rows(place: int) -> tuple:
    wide = t(1, 3, 16)
    return ([t(0, 1, 4), t(0, 4, 1).t(), wide[:1, ::2], wide[:1, ::2][:, :4], t(2, 1, 6)][place],)


def image_of(fn: Any) -> Any:
    return table.snippet(args=images, calls=5, recompiles=range(1, 5), backward=False, breaks=True, twins=ALL)(fn)


def row_of(fn: Any) -> Any:
    return table.snippet(args=rows, calls=5, recompiles=range(1, 5), backward=False, breaks=True, twins=ALL)(fn)


@image_of
def strides_of_an_argument(x):
    return x * 2, x.stride(), x.stride(1), x.is_contiguous(), x.is_contiguous(memory_format=torch.channels_last)


@image_of
def strides_of_a_result(x):
    return torch.relu(x).stride(), x.sin().stride(), (x + 1).stride(), torch.tril(x).stride()


@image_of
def branch_by_a_stride(x):
    return x + 1 if torch.relu(x).stride(1) == 1 else x - 1


@image_of
def as_strided_by_a_stride(x):
    y = torch.relu(x)
    return y.as_strided(y.shape, y.stride()).sum(), torch.ones(200).as_strided(y.shape, y.stride()).stride()


@image_of
def tensors_like_another(x):
    return torch.empty_like(x).stride(), torch.zeros_like(torch.relu(x)).stride(), x.new_empty_strided(x.shape, x.sigmoid().stride()).stride()


@image_of
def formats(x):
    y = torch.relu(x)
    return y.is_contiguous(), y.is_contiguous(memory_format=torch.channels_last), y.dim_order(), torch._prims_common.suggest_memory_format(y)


@image_of
def operators_that_read_strides(x):
    y = x * 2
    aten = torch.ops.aten
    return y, aten.is_non_overlapping_and_dense(y), aten.is_strides_like_format(y, torch.channels_last), aten.stride(y)


@image_of
def strides_of_layers(x):
    y = F.conv2d(x, torch.ones(1, 1, 1, 1))
    return y.stride(), F.max_pool2d(y, 1).stride(), F.batch_norm(y, None, None, training=True).stride(), F.pad(x, (1, 1)).stride()


@image_of
def strides_of_views(x):
    y = torch.relu(x)
    return [v.stride() for v in (y.detach(), y.unsqueeze(0), y.transpose(0, 1), y[:1], y.flatten(0, 1), y.squeeze(1), y.expand(2, *y.shape))]


@image_of
def strides_changed_in_place(x):
    y, z = torch.relu(x), torch.relu(x)
    before = y.stride()
    y.transpose_(1, 3)
    z.squeeze_(1).unsqueeze_(0)
    return before, y.stride(), z.stride(), y + 1


@image_of
def strides_behind_a_draw(x):
    y = torch.rand_like(torch.relu(x))
    return y.stride(), torch.rand(2)


@image_of
def strides_behind_a_write(x):
    y = torch.relu(x).add_(1)
    return y.stride(), x.mul_(2).stride()


# AOTAutograd makes a new tensor in the place of the one that is written into.
@table.snippet(args=images, calls=5, recompiles=range(1, 5), backward=False, breaks=True, twins=[twin for twin in ALL if "aot" not in twin])
def strides_of_what_was_written_into(x):
    return torch.add(x, x, out=torch.empty_like(x)).stride(), x + 1


@image_of
def strides_without_gradients(x):
    with torch.no_grad():
        return torch.relu(x.requires_grad_(False)).stride()


# The count holds what NumPy and its arrays do, in captured code by other operators.
@table.snippet(args=images, calls=5, recompiles=range(1, 5), backward=False, breaks=True, twins=UNCOUNTED)
def strides_of_an_array(x):
    return x * 2, x.numpy().strides, torch.relu(x).numpy().strides, np.asarray(x).flags.f_contiguous


@table.snippet(args=images, calls=5, recompiles=range(1, 5), backward=False, breaks=True, twins=UNCOUNTED)
def an_array_and_back(x):
    return x * 2, torch.from_numpy(x.numpy()).stride(), torch.from_dlpack(torch.relu(x)).stride()


@image_of
def is_it_the_same_tensor(x):
    y = torch.relu(x)
    return y.contiguous() is y, y.contiguous(memory_format=torch.channels_last) is y, x.contiguous() is x


@row_of
def a_row(x):
    return x * 2, x.stride(), (x + 1).stride(), x.detach().stride(), x.sum(0, keepdim=True).stride()


@row_of
def a_column(x):
    y = x.t()
    return y.stride(), (y * 2).stride(), y.softmax(0).stride(), y.cumsum(0).stride(), torch.cat([y, y]).stride()


@row_of
def a_product(x):
    return (x @ x.t()).stride(), F.linear(x, torch.ones(1, x.shape[-1])).stride(), torch.einsum("ij->ji", x).stride()


@row_of
def written_out(x):
    return f"{(x * 2).stride()}", x + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_strides(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("kind", ["checkpoint", "cond", "vmap", "nested"])
@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("dynamic", [None, True])
def test_strides_inside_of_a_function_that_an_operator_runs(kind: str, options: dict, dynamic: bool | None) -> None:
    def inside(x: Tensor) -> Tensor:
        y = torch.relu(x)
        return y * 2 if y.stride()[1] == 1 else y * 3

    def outside(x: Tensor) -> Tensor:
        if kind == "checkpoint":
            return torch.utils.checkpoint.checkpoint(inside, torch.sin(x), use_reentrant=False)
        if kind == "cond":
            return torch.cond(x.sum() > 100, lambda x: x * 1.0, inside, (torch.sin(x),))
        return torch.vmap(inside)(x) if kind == "vmap" else fineline.nested_compile_region(inside)(torch.sin(x))

    compiled = fineline.compile(outside, backend="eager", dynamic=dynamic, options=options)
    for place in (0, 1, 3, 4):
        (x,) = images(place)
        expected = torch.relu(torch.sin(x) if kind != "vmap" else x)
        first = expected[0] if kind == "vmap" else expected
        assert torch.equal(compiled(x), expected * (2 if first.stride()[1] == 1 else 3))


def test_symbolic_sizes_stay_so_where_rule_and_kernel_agree() -> None:
    def fn(x: Tensor) -> Any:
        y = (x + 1).relu()
        return y if y.is_contiguous() and y.stride(0) == x.shape[1] else y * 2

    compiled = fineline.compile(fn, backend="eager", dynamic=True, fullgraph=True)
    for n in (3, 5, 7, 9):
        assert torch.equal(compiled(torch.ones(n, n + 1)), torch.full((n, n + 1), 2.0))
    events = fineline.explain(compiled)(torch.ones(4, 5))
    assert len(events.graphs) == 1 and not events.breaks


def test_where_rule_and_kernel_differ_sizes_stay_symbolic_behind_a_break() -> None:
    def fn(x: Tensor) -> Any:
        return x + 1 if torch.relu(x).stride(1) == 1 else x - 1

    graphs: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend, dynamic=True)
    for n in (2, 3, 5, 7, 9):
        x = torch.ones(n, 1, 4, 4).to(memory_format=torch.channels_last)
        assert torch.equal(compiled(x), fn(x))
    assert len(graphs) == 2, [str(gm.graph) for gm in graphs]
