"""Refused calls: what they have written is put back, whatever memory the tensors have by then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import fineline
from fineline.errors import FinelineError

WRITES: dict[str, Callable] = {}
MODES: dict[str, dict[str, Any]] = {
    "fullgraph": {"fullgraph": True},
    "declared": {"breaks": "declared"},
    "dynamic": {"fullgraph": True, "dynamic": True},
    "fake": {"fullgraph": True, "options": {"first_call": "compiled"}},
    "declared_fake": {"breaks": "declared", "options": {"first_call": "compiled"}},
    "aot": {"fullgraph": True, "backend": "aot_eager"},
}


def write(fn: Callable) -> Callable:
    WRITES[fn.__name__] = fn
    return fn


# Each ends in what breaks the graph, and is refused there or before.
@write
def other_memory(x, y):
    t = x * 1
    t.set_(y)
    print(end="")


@write
def set_and_write(x, y):
    t = x * 1
    t.set_(y)
    t.add_(1)
    print(end="")


@write
def set_storage(x, y):
    t = x * 1
    t.set_(y.untyped_storage(), 0, (2,), (1,))
    t.add_(1)
    print(end="")


@write
def set_twice(x, y):
    t = x * 1
    t.add_(1)
    t.set_(y)
    t.add_(2)
    t.set_(x)
    t.add_(3)
    print(end="")


@write
def set_data(x, y):
    t = x * 1
    t.data = y
    t.add_(1)
    print(end="")


@write
def data_write(x, y):
    x.data.add_(1)
    y.detach().mul_(2)
    print(end="")


@write
def data_then(x, y):
    x.data.add_(1)
    x.add_(1)
    print(end="")


@write
def view_write(x, y):
    x.view(2, 2)[0].copy_(y[:2])
    x[1:3] = 7
    print(end="")


@write
def view_resize(x, y):
    v = x.view(2, 2)
    v.resize_(10, 10)
    v.fill_(3)
    print(end="")


@write
def view_resize_small(x, y):
    v = x.view(2, 2)
    v.resize_(1)
    v.fill_(3)
    print(end="")


@write
def resize(x, y):
    x.resize_(100)
    print(end="")


@write
def resize_as(x, y):
    t = x[:0]
    t.resize_as_(y)
    t.add_(3)
    print(end="")


@write
def out(x, y):
    torch.add(x, 1, out=y)
    torch.add(x, 1, out=x[:])
    print(end="")


@write
def out_empty(x, y):
    torch.add(x, 1, out=y[:0])
    print(end="")


@write
def transposed_view(x, y):
    x.view(2, 2).t_().add_(1)
    x.unsqueeze_(0)
    print(end="")


@write
def transposed(x, y):
    v = x.view(2, 2).transpose_(0, 1)
    v[0, 1] = 9
    print(end="")


@write
def squeezed(x, y):
    v = x.view(1, 4).squeeze_(0)
    v[1] = 9
    print(end="")


@write
def strided_view(x, y):
    v = x.view(4).as_strided_((2,), (2,))
    v.fill_(9)
    print(end="")


@write
def swap(x, y):
    torch.utils.swap_tensors(x, y)
    print(end="")


@write
def swap_made(x, y):
    t = x * 1
    torch.utils.swap_tensors(t, y)
    t.add_(1)
    print(end="")


@write
def storage_resize(x, y):
    x.untyped_storage().resize_(400)
    print(end="")


@write
def storage_copy(x, y):
    x.untyped_storage().copy_(y.untyped_storage())
    print(end="")


@write
def share(x, y):
    t = x.view(4)
    t.share_memory_()
    t.add_(1)
    print(end="")


@write
def set_under_no_grad(x, y):
    with torch.no_grad():
        t = x.detach()
        t.set_(y)
        t.zero_()
    print(end="")


@write
def rename(x, y):
    x.add_(1).mul_(2).sub_(y)
    print(end="")


@write
def index_put(x, y):
    x.index_put_((torch.tensor([0]),), torch.tensor(5.0))
    y.scatter_(0, torch.tensor([1]), 3.0)
    print(end="")


@write
def foreach(x, y):
    torch._foreach_add_([x, y], 1)
    print(end="")


@write
def swapdata(x, y):
    x.data, y.data = y.data, x.data
    print(end="")


@write
def grads(x, y):
    x.requires_grad_()
    x.mul(2).sum().backward()
    print(end="")


@write
def setgrad(x, y):
    x.grad = y * 2
    print(end="")


@write
def attributes(x, y):
    x.tag = 1
    y.requires_grad = True
    print(end="")


@write
def bn(x, y):
    F.batch_norm(torch.randn(3, 4), x, y.abs(), training=True)
    print(end="")


@write
def chunked(x, y):
    a, b = x.chunk(2)
    a.copy_(b)
    b.zero_()
    print(end="")


@write
def history(x, y):
    w = torch.ones(4, requires_grad=True)
    x.mul_(w)
    print(end="")


@write
def aliased(x, y):
    t = x * 1
    t.set_(y)
    x.add_(t)
    t.set_(x)
    t.zero_()
    print(end="")


@write
def set_empty(x, y):
    t = x.view(4)
    t.set_()
    print(end="")


@write
def set_view(x, y):
    t = x[1:]
    t.set_(y)
    t.add_(5)
    print(end="")


def state(t: Tensor) -> tuple:
    """All that the caller can see of a tensor."""
    memory = t.untyped_storage().nbytes(), t.shape, t.stride(), t.storage_offset()
    return (*memory, t.detach().tolist(), t.requires_grad, t.is_leaf, t._version, t.grad is None, dict(t.__dict__))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", WRITES)
def test_a_refused_call_leaves_its_arguments_as_they_were(name: str, mode: str) -> None:
    x, y = torch.arange(4.0), torch.full((4,), 7.0)
    given = [x, y, x[:2], y.view(2, 2)]
    before = [state(t) for t in given]
    with pytest.raises(FinelineError):
        fineline.compile(WRITES[name], **{"backend": "eager", **MODES[mode]})(x, y)
    assert [state(t) for t in given] == before


def writes_outside(x: Tensor, y: Tensor) -> None:
    x.mul_(3)
    t = x * 1
    t.set_(y)
    t.add_(1)
    print(end="")


def test_a_block_in_which_breaks_are_errors_leaves_them_too() -> None:
    x, y = torch.arange(4.0), torch.full((4,), 7.0)
    with fineline.error_on_graph_break(True), pytest.raises(FinelineError):
        fineline.compile(writes_outside, backend="eager")(x, y)
    assert (x.tolist(), x._version, y.tolist(), y._version) == ([0.0, 1.0, 2.0, 3.0], 0, [7.0] * 4, 0)


def test_a_forbidden_call_leaves_them_too() -> None:
    x, y = torch.arange(4.0), torch.full((4,), 7.0)
    policy = fineline.Policy(forbid=[print])
    with pytest.raises(FinelineError):
        fineline.compile(writes_outside, backend="eager", policy=policy)(x, y)
    assert (x.tolist(), x._version, y.tolist(), y._version) == ([0.0, 1.0, 2.0, 3.0], 0, [7.0] * 4, 0)


def test_what_fails_later_is_put_back_as_well() -> None:
    """A graph that is run again, because a check in it failed, starts from what the memory was."""

    def fn(x: Tensor, y: Tensor) -> Tensor:
        y.view(2, 2)[0].mul_(2)
        y.add_(1)
        torch._check(x.sum().item() > 0)
        return x + y

    compiled = fineline.compile(fn, backend="eager")
    for value in (1.0, 2.0, -1.0, 3.0):
        results = []
        for call in (fn, compiled):
            x, y = torch.full((4,), value), torch.full((4,), 7.0)
            try:
                results.append((call(x, y).tolist(), y.tolist(), y._version))
            except RuntimeError as e:
                results.append((type(e), y.tolist()))
        assert results[0][:2] == results[1][:2]
