"""The attribute ``.data`` of tensors: assignments to it, writes through it, and deleted attributes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.oracle import Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}


def parameter(i):
    return (t(i), nn.Parameter(t(i + 50)))


def with_layer(i):
    return (t(i),)


# -- assignments -------------------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1, options=FULL)
def of_an_argument(x):
    x.data = x.data * 2
    return x + 1


@table.snippet(max_graphs=1, options=FULL)
def of_an_argument_by_itself(x):
    before = x._version
    x.data = x * 2
    return x + 1, x._version - before, x.is_leaf


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_a_parameter(x, p):
    p.data = p.data * 2
    return x + 1


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_a_parameter_that_is_used_after_it(x, p):
    p.data = x * 2
    return (p * 3).sum(), p.requires_grad, p.is_leaf


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def by_a_setter(x, p):
    setattr(p, "data", x.exp())  # noqa: B010
    torch.Tensor.data.__set__(x, x.cos())
    return x * p


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_a_parameter_without_gradients(x, p):
    with torch.no_grad():
        p.data = p * 0.9 + x * 0.1
        return p * 2, p.grad


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def by_another_argument(x, p):
    x.data = p
    return x * 2


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def by_another_argument_that_is_returned(x, p):
    x.data = p
    return x * 2, p, p.view(-1), x.view(-1)


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def by_a_view_of_another_argument(x, p):
    x.data = p.detach()[:, :2]
    return x * 2, p * 2


@table.snippet(max_graphs=1, options=FULL)
def of_another_shape(x):
    x.data = torch.ones(5, device=x.device)
    return x * 2, x.shape, x.stride()


@table.snippet(max_graphs=1, options=FULL)
def of_other_strides(x):
    x.data = x.data.t()
    return x * 2, x.shape, x.stride(), x.is_contiguous()


@table.snippet(max_graphs=1, options=FULL)
def several_times(x, y):
    x.data = y * 2
    z = x + 1
    x.data = z.exp()
    y.data = x.data.sin()
    return x, y * z


@table.snippet(max_graphs=1, options=FULL)
def and_then_a_write(x):
    before = x._version
    y = x * 2
    x.data = y
    x.add_(1)
    return y, x * 2, before


@table.snippet(max_graphs=1, options=FULL)
def whose_value_is_written_into_later(x):
    y = x * 2
    x.data = y
    y.add_(1)
    return y, x * 2


@table.snippet(max_graphs=1, options=FULL)
def whose_value_is_returned(x):
    y = x * 2
    x.data = y
    return y, y.view(-1), x.view(-1)


@table.snippet(max_graphs=1, options=FULL)
def beside_views_of_what_it_was(x):
    view = x.view(-1)
    x.data = x * 2
    return view, x.view(-1) + view


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_what_a_gradient_needs(x, p):
    z = x * p
    x.data = x * 2
    return z


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def two_arguments_exchange_it(x, p):
    x.data, p.data = p.data, x.data
    return x * 2, p * 3


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_a_parameter_that_is_used_and_written_through(x, p):
    y = (p * x).sum()
    p.data = p.data * 0.9 + x * 0.1
    p.data.clamp_(-1, 1)
    return y.detach(), p * 2


class Average(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.slow = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x):
        y = self.layer(x)
        for p, s in zip(self.layer.parameters(), self.slow.parameters(), strict=True):
            s.data = s.data * 0.9 + p.data * 0.1
        self.steps.data = self.steps + 1
        with torch.no_grad():
            return y, self.slow(x)


@table.program(max_graphs=1, options=FULL)
def of_parameters_of_a_module() -> Any:
    torch.manual_seed(0)
    module = Average()
    return module, module


def change(state: Any) -> None:
    state[1].data = t(7)


@table.program(max_graphs=1, options=FULL, calls=4, change={2: change}, args=with_layer)
def of_a_tensor_that_changes_between_calls() -> Any:
    held = [t(90), t(91)]

    def fn(x):
        held[0].data = held[0] + held[1] * x
        return held[0] * 2

    return fn, held


@table.program(calls=4, recompiles=(2,), args=lambda i: (t(i), None) if i < 2 else (shared := t(i), shared))
def of_one_of_two_that_may_be_one_tensor() -> Any:
    def fn(x, y):
        y = x * 1 if y is None else y
        x.data = x * 2
        return x + y

    return fn, []


@table.snippet(min_graphs=0, calls=4, recompiles=(2,), args=lambda i: (a := t(i), t(i + 9)) if i < 2 else (a := t(i), a.view(-1)[:12].view(3, 4)))
def of_one_of_two_that_may_share_memory(x, y):
    x.data = x * 2
    return x + y


@table.snippet(min_graphs=0, breaks=True)
def in_inference_mode(x):
    with torch.inference_mode():
        x.data = x * 2
    return x + 1


@table.snippet(min_graphs=0, breaks=True)
def in_a_transform(x):
    kept = x.clone()

    def inner(row):
        kept.data = kept * 2
        return row * 2

    return torch.vmap(inner)(x), kept


@table.snippet(min_graphs=0, breaks=True, grad=True)
def in_a_checkpoint(x):
    held = torch.ones(4)

    def inner(v):
        held.data = held + 1
        return v * held

    return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False), held


def halve(x):
    x.data = x / 2
    if x.shape[0] == 3:
        raise ValueError("three")
    return x * 2


@table.snippet(min_graphs=0, breaks=True, recompiles=(1, 2))
def and_then_an_error(x):
    try:
        return halve(x)
    except ValueError as e:
        return str(e), x + 1


@table.program(min_graphs=0, breaks=True, recompiles=(1, 2))
def and_then_an_error_that_leaves_the_call() -> Any:
    held: list[Any] = []
    return halve, held


# -- writes through it -------------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1, options=FULL, args=parameter)
def written_through(x, p):
    p.data.add_(x)
    p.data.mul_(2).clamp_(-1, 1)
    return x + 1


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def copied_into(x, p):
    p.data.copy_(x * 2)
    return p * 2


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def augmented(x, p):
    p.data *= 0.5
    p.data[0] = 3.0
    return x * p


@table.snippet(max_graphs=1, options=FULL, args=parameter)
def of_what_the_graph_makes(x, p):
    y = p * 2
    y.data.add_(1)
    return y * 3


# -- that no graph holds -----------------------------------------------------------------------------------------------
@table.snippet(breaks=True)
def of_what_the_graph_makes_anew(x):
    y = x * 2
    y.data = x + 5
    return y * 3


@table.snippet(breaks=True)
def of_another_dtype(x):
    x.data = x.data.double()
    return x * 2


@table.snippet(breaks=True, args=lambda i: (t(i, 4, 6)[1:],))
def of_a_view(x):
    x.data = x * 2
    return x + 1


@table.snippet(breaks=True, args=lambda i: (t(i, grad=True) * 2,))
def of_what_has_a_history(x):
    x.data = x.data * 2
    return x + 1


@table.snippet(breaks=True)
def of_what_the_graph_has_written_into(x):
    x.add_(1)
    x.data = x * 2
    return x + 1


@table.snippet(breaks=True)
def before_a_graph_break(x):
    x.data = x * 2
    y = x + 1 if x.sum() < 1e9 else x
    x.data = y * 3
    return x * y


@table.snippet(breaks=True, min_graphs=0)
def of_a_type_that_does_not_fit(x):
    try:
        x.data = x.to_sparse()
    except RuntimeError as e:
        return str(e).partition("\n")[0], x * 2


@table.snippet(args=lambda i: (t(i, 3 + i, 4),), recompiles=(1,), options=FULL)
def of_sizes_that_vary(x):
    x.data = x * 2
    return x + 1


# -- deleted attributes ------------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1, options=FULL)
def attribute_of_an_argument(x):
    x.tag = 3
    y = x * x.tag
    del x.tag
    return y, hasattr(x, "tag")


def tag(state: Any) -> None:
    state[0].tag = 5


@table.program(max_graphs=2, calls=4, recompiles=(2,), change={0: tag, 1: tag, 3: tag}, args=with_layer, options=FULL)
def attribute_from_before() -> Any:
    held = [t(3)]

    def fn(x):
        if hasattr(held[0], "tag"):
            del held[0].tag
        return x * held[0]

    return fn, held


@table.snippet(max_graphs=1, options=FULL)
def attribute_of_what_the_graph_makes(x):
    y = x * 2
    y.tag, y.kept = 3, [x]
    del y.tag
    return y, hasattr(y, "tag"), y.kept


@table.snippet(options=FULL, max_graphs=1)
def attribute_that_is_not_there(x):
    try:
        del x.tag
    except AttributeError as e:
        return str(e), x * 2


def with_grad(i):
    x = t(i, grad=True)
    x.grad = t(i + 4)
    return (x,)


@table.snippet(options=FULL, max_graphs=1, args=with_grad)
def the_gradient(x):
    y = x * x.grad
    del x.grad
    return y, x.grad is None


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_data(program: Program, twin: str) -> None:
    check(program, twin)
