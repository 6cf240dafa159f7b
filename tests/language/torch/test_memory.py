"""Tensors that are given the memory of others, or are themselves what operators give: through AOTAutograd too, whatever twins run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from tests.oracle import Program, Step, Table, check, t

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
    # Behind AOTAutograd the node has another name.
    return z + 1, y.requires_grad, z.grad_fn is not None


# What changes nothing ends no graph.
@table.snippet(max_graphs=1)
def data_of_its_own(x):
    y = x * 2
    y.data = y
    return y + 1


# -- swapped as a whole ------------------------------------------------------------------------------------------------
@table.snippet(breaks=True, backward=False)
def tensors_swapped(x):
    a, b = x * 2, (x * 3).sum(0)
    a.name = "a"
    both = [a, b]
    torch.utils.swap_tensors(a, b)
    return a + 1, b * 2, both, a.shape, hasattr(a, "name"), b.name


# What has one reference too many stays as it is.
@table.snippet(breaks=True, backward=False)
def tensors_that_cannot_be_swapped(x):
    a, b = x * 2, x * 3
    view = a[0]
    try:
        torch.utils.swap_tensors(a, b)
    except RuntimeError as e:
        return str(e), a + 1, b, view


# -- what operators give as it is ------------------------------------------------------------------------------------
ITSELF: dict[str, Callable[[Tensor], Tensor]] = {
    "dropout's module": nn.Dropout(0.5).eval(),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "dropout of nothing": lambda x: F.dropout(x, p=0.0),
    "dropout by keywords": lambda x: F.dropout(p=0.5, input=x, training=False),
    "torch's dropout": lambda x: torch.dropout(x, 0.5, train=False),
    "aten's dropout": lambda x: torch.ops.aten.dropout(x, 0.5, False),
    "aten's dropout, an overload": lambda x: torch.ops.aten.dropout.default(x, 0.5, False),
    "dropout in place": lambda x: F.dropout(x, 0.5, False, True),
    "dropout of channels": lambda x: F.dropout2d(x[None, None], 0.5, False)[0, 0],
    "alpha dropout": lambda x: F.alpha_dropout(x, 0.5, False),
    "dropout of features": lambda x: torch.feature_dropout(x, 0.5, False),
    "alpha dropout of features": lambda x: F.feature_alpha_dropout(x, 0.5, False),
    "native dropout, a copy": lambda x: torch.native_dropout(x, 0.5, False)[0],
    "native dropout, a product": lambda x: torch.native_dropout(x, 0.0, True)[0],
    "lifted": lambda x: torch.ops.aten.lift_fresh(x),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32).to("cpu").to(x).float().cpu().type_as(x),
    "expanded": lambda x: x.expand_as(x),
    "broadcast": lambda x: torch.broadcast_tensors(x, x)[1],
    "reshaped": lambda x: x.reshape(x.shape),
    "with one dimension": lambda x: x.ravel().flatten(),
    "raveled": lambda x: x.ravel(),
    "resolved": lambda x: x.resolve_conj().resolve_neg(),
    "real": lambda x: x.real,
    "positive": lambda x: +x,
    "as a tensor": lambda x: torch.as_tensor(x),
    "at least": lambda x: torch.atleast_2d(torch.atleast_1d(x)),
    "summed": lambda x: x.sum_to_size(x.shape),
    "padded": lambda x: F.pad(x, (0, 0)),
}


def itself(op: Callable[[Tensor], Tensor]) -> Callable:
    def fn(x: Tensor) -> Any:
        y = x * 2
        given, also = op(x), op(y)
        found = given is x, also is y, given.stride()
        given.add_(1), also.sub_(1)
        return found, given, also, y + 1, x * 1

    return fn


THROUGH_AOT = ["aot", *[pytest.param(twin, marks=pytest.mark.later) for twin in ("aot_fake", "aot_dynamic")]]


# At a second size, sizes are symbolic.
@pytest.mark.parametrize("through", ["captured", "fake", "dynamic", *THROUGH_AOT])
@pytest.mark.parametrize("name", ITSELF)
def test_what_operators_give_as_it_is(name: str, through: str) -> None:
    steps = [Step(n, lambda n: (t(n, n, n),)) for n in (3, 3, 4, 5)]
    check(Program(name, lambda: itself(ITSELF[name]), steps, frozenset(range(4)), breaks=True, backward=False), through)


# -- the order in memory -------------------------------------------------------------------------------------------------
ORDERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "copysign": lambda a, b, row: torch.copysign(a, b),
    "quotients": lambda a, b, row: a // b + torch.div(b, a, rounding_mode="floor") * row.floor_divide(b),
    "a quotient": lambda a, b, row: b // a,
    "a quotient of a row": lambda a, b, row: torch.div(row, b, rounding_mode="floor"),
    "xlogy": lambda a, b, row: torch.xlogy(a, b.abs()),
    "logical": lambda a, b, row: row.logical_and(b),
    "logical, by keywords": lambda a, b, row: torch.logical_or(other=b, input=row),
    "logical of a number": lambda a, b, row: torch.logical_xor(row[0], b),
    "logaddexp": lambda a, b, row: torch.logaddexp(row, b),
    "heaviside": lambda a, b, row: torch.heaviside(row, b),
    "ldexp": lambda a, b, row: torch.ldexp(row, b),
    "a number's power": lambda a, b, row: 2**b,
    "a number's power, by name": lambda a, b, row: torch.pow(2.0, b),
    "a number's power, a method": lambda a, b, row: b.__rpow__(2.0),
    "a tensor's power": lambda a, b, row: b**2,
    "a float's power": lambda a, b, row: torch.float_power(2.0, b),
    "addr": lambda a, b, row: torch.addr(b, a[:, 0], row),
    "addr of nothing": lambda a, b, row: torch.addr(b, a[:, 0], row, beta=0),
    "addr, a method": lambda a, b, row: b.addr(a[:, 0], row, beta=0.0),
    "normal": lambda a, b, row: torch.normal(b, b.abs()),
    "logsigmoid": lambda a, b, row: F.logsigmoid(b),
    "rrelu": lambda a, b, row: F.rrelu(b),
    "nll_loss": lambda a, b, row: F.nll_loss(*classified(b), reduction="none"),
    "cross_entropy": lambda a, b, row: F.cross_entropy(*classified(b), reduction="none"),
    "batch_norm": lambda a, b, row: F.batch_norm(b[None].mT, None, None, training=True),
    "batch_norm of two dimensions": lambda a, b, row: F.batch_norm(b, row.clone(), row.abs(), training=False),
    "batch_norm with channels last": lambda a, b, row: F.batch_norm(last(b), None, None, training=True),
    "reflected": lambda a, b, row: F.pad(last(b), (1, 1, 1, 1), "reflect"),
    "replicated": lambda a, b, row: F.pad(b[None, None].mT, (1, 1, 1, 1), mode="replicate"),
    "shuffled": lambda a, b, row: F.channel_shuffle(last(b), 1),
    "max_pool1d": lambda a, b, row: F.max_pool1d(b[None].mT, 2),
    "unpooled": lambda a, b, row: F.max_unpool2d(*F.max_pool2d(last(b), 2, return_indices=True), 2),
}


def classified(x: Tensor) -> tuple[Tensor, Tensor]:
    return x[None, :, :, None].expand(2, -1, -1, 3), x.new_zeros(2, 3, x.shape[1], dtype=torch.int64).mT


def last(x: Tensor) -> Tensor:
    return x[None, :, :, None].expand(2, -1, -1, 4).contiguous(memory_format=torch.channels_last)


def ordered(op: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Callable:
    def fn(x: Tensor) -> Any:
        y = op(x, x.t().contiguous().t() + 1, x[0] * 2)
        return y.stride(), y.is_contiguous(), y.dtype, y

    return fn


# Backends and twins run the same kernels; only what stands for tensors could be ordered otherwise.
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("through", ["fake", "dynamic"])
@pytest.mark.parametrize("name", ORDERS)
def test_the_order_in_memory_is_that_of_the_kernels(name: str, through: str, grad: bool) -> None:
    steps = [Step(n, lambda n: (t(n, n, n + 2, grad=grad),)) for n in (4, 4, 5)]
    check(Program(name, lambda: ordered(ORDERS[name]), steps, frozenset(range(3)), tolerance=1e-6), through)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_memory(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("through", THROUGH_AOT)
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


def merged(linear: nn.Linear, x: Tensor, delta: Tensor) -> Any:
    linear.weight.data -= delta
    y = linear(x).relu()
    linear.weight.data += delta
    linear.weight.data *= 2
    return y


@pytest.mark.parametrize("mode", [{}, {"dynamic": True}, {"options": {"first_call": "compiled"}}], ids=str)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_data_written_in_place_is_one_graph(backend: str, mode: dict[str, Any]) -> None:
    """As adapters are merged and unmerged: that ``.data`` is set to itself then changes nothing."""
    compiled = fineline.compile(merged, backend=backend, fullgraph=True, **mode)
    ours, theirs = (nn.Linear(4, 4) for _ in range(2))
    theirs.load_state_dict(ours.state_dict())
    for rows in (2, 3, 5):
        x = torch.randn(rows, 4)
        got, expected = compiled(ours, x, torch.ones(4, 4)), merged(theirs, x, torch.ones(4, 4))
        got.sum().backward()
        expected.sum().backward()
        torch.testing.assert_close(got, expected)
        torch.testing.assert_close(ours.weight, theirs.weight)
        torch.testing.assert_close(ours.weight.grad, theirs.weight.grad)


@table.snippet(args=lambda place: (t(place), t(place + 1)), calls=4, breaks=True, min_graphs=0, backward=False)
def data_of_another_is_set(x, y):
    a, b = x * 2, y * 3
    shared = a.data
    a.data = shared.add_(1)
    a.data = b.data
    b += 1
    shared += 5
    return a + 1, b, shared


def viewed(x: Tensor) -> Any:
    y = torch.einsum("bhid,bhjd->bhij", x[None], x[None])
    return y.stride(), y[:, :1].transpose(1, 2).view(3, 1, 3).stride()


def unviewed(x: Tensor) -> Any:
    y = x.new_zeros(4, 4).t().reshape(2, 2, 1, 4).transpose(0, 1)
    try:
        return y.view(4, 4) + x.sum()
    except RuntimeError as e:
        return str(e), y.reshape(4, 4) + x.sum()


# PyTorch's rule for fakes gives views that are not there, and other strides to dimensions of one element.
@pytest.mark.parametrize("fn", [viewed, unviewed])
def test_views_of_fakes_are_those_that_there_are(fn: Callable) -> None:
    check(Program(fn.__name__, lambda: fn, [Step(n, lambda n: (t(n, n, 3, 4),)) for n in (2, 2, 5)], frozenset(range(3))), "fake")
