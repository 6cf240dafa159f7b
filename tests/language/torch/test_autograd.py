"""Gradients in captured code: custom functions, gradient modes, autocast, backward inside, hooks and checkpoints."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch.autograd import Function

from tests.oracle import Program, Table, check, t

table = Table()


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.factor + 0 * x, None


class Split(Function):
    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        return a * y + b, a * x + b


class Straight(Function):
    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-1, 1)


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        x.add_(1)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


class Partly(Function):
    @staticmethod
    def forward(ctx, x):
        order = x.argsort()
        ctx.mark_non_differentiable(order)
        ctx.needs = ctx.needs_input_grad
        return x * 2, order

    @staticmethod
    def backward(ctx, grad, _):
        assert ctx.needs[0]
        return grad * 2


# -- autograd.Function -----------------------------------------------------------------------------------------------
@table.snippet(grad=True)
def custom_function_with_grad(x):
    return Scale.apply(x, 3.0) + Scale.apply(x * 2, 0.5)


@table.snippet()
def custom_function_without_grad(x):
    return Scale.apply(x, 3.0), Straight.apply(x)


@table.snippet(grad=True)
def custom_function_with_two_results(x, y):
    a, b = Split.apply(x, y)
    return a * 2 + b, Split.apply(x.detach(), y.detach())


@table.snippet(grad=True)
def custom_function_under_no_grad(x):
    with torch.no_grad():
        y = Scale.apply(x, 2.0)
    return y, y.requires_grad, Straight.apply(x) * x


@table.snippet(grad=True)
def custom_function_in_place(x):
    y = x * 2
    z = InPlace.apply(y)
    return z * y, z is y


@table.snippet(grad=True)
def custom_function_partly_differentiable(x):
    y, order = Partly.apply(x)
    return y, order, order.requires_grad


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        return Straight.apply(x) + 1

    @staticmethod
    def backward(ctx, grad):
        return Scale.apply(grad, 5.0)


@table.snippet(grad=True)
def custom_function_in_custom_function(x):
    return Outer.apply(x * 2), Outer.apply(x.detach())


@table.program(change={2: lambda state: state.update(factor=4.0)}, recompiles=(2,), grad=True, min_graphs=0, breaks=True)
def custom_function_reads_what_changes() -> Any:
    state = {"factor": 2.0}

    class Reads(Function):
        @staticmethod
        def forward(ctx, x):
            return x * state["factor"]

        @staticmethod
        def backward(ctx, grad):
            return grad * state["factor"]

    def fn(x):
        return Reads.apply(x) + 1

    return fn, state


# -- gradient modes --------------------------------------------------------------------------------------------------
@table.snippet(grad=True)
def modes_as_blocks(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        c = b + x
    with torch.set_grad_enabled(False):
        d = x * 4
    return a, b, c, d * x, (a.requires_grad, b.requires_grad, c.requires_grad, d.requires_grad), torch.is_grad_enabled()


@table.snippet(grad=True)
def modes_as_functions(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y * x, torch.is_grad_enabled()


@table.snippet(grad=True, recompiles=(1,))
def mode_left_switched(x):
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3


@torch.no_grad()
def frozen(x):
    return x * 2


@torch.inference_mode()
def inferred(x):
    return x * 2


@torch.enable_grad()
def graded(x):
    return x * 3


@table.snippet(grad=True)
def modes_as_decorators(x):
    with torch.no_grad():
        z = graded(x)
    return frozen(x) + x, z, frozen(x).requires_grad


@table.snippet(backward=False, breaks=True, min_graphs=0)
def inference_mode_block(x):
    with torch.inference_mode():
        y = x * 2
    return y, y.is_inference(), inferred(x).is_inference(), torch.is_inference_mode_enabled()


@table.snippet(grad=True)
def mode_restored_when_raising(x):
    try:
        with torch.no_grad():
            y = x * 2
            raise ValueError("inside")
    except ValueError:
        return y + x, torch.is_grad_enabled()


@table.snippet(grad=True)
def mode_objects_used_twice(x):
    mode = torch.no_grad()
    with mode:
        y = x * 2
    with mode, torch.enable_grad():
        z = x * 3
    return y + z


@table.snippet(grad=True)
def mode_in_an_exit_stack(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        y = x * 2
    return y + x


@table.snippet(grad=True)
def conditional_mode(x):
    with torch.no_grad() if x.shape[0] > 2 else contextlib.nullcontext():
        y = x * 2
    with contextlib.nullcontext(5) as five:
        z = x * five
    return y, z


GRAD_OFF_AND_ON = {2: lambda _: torch.set_grad_enabled(False), 3: lambda _: torch.set_grad_enabled(True)}


@table.program(grad=True, calls=4, recompiles=(2,), must_recompile=True, change=GRAD_OFF_AND_ON)
def ambient_mode_changes() -> Any:
    def fn(x):
        return x * 2, torch.is_grad_enabled()

    return fn


# -- autocast --------------------------------------------------------------------------------------------------------
@table.snippet()
def autocast_block(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ y.T
        with torch.autocast("cpu", enabled=False):
            w = x @ y.T
    return z, w, z.dtype, torch.is_autocast_enabled("cpu")


@torch.autocast("cpu", dtype=torch.bfloat16)
def cast_product(x, y):
    return x @ y


@table.snippet(grad=True, tolerance=1e-6)
def autocast_as_a_decorator(x, y):
    return cast_product(x, y.T).float() + 1, torch.get_autocast_dtype("cpu")


# -- backward inside -------------------------------------------------------------------------------------------------
@table.snippet(grad=True, breaks=True, min_graphs=0, backward=False)
def backward_inside(x, y):
    loss = (x * y).sum()
    loss.backward()
    return x.grad * 2, y.grad, loss


@table.snippet(grad=True, breaks=True, min_graphs=0, backward=False)
def gradients_inside(x, y):
    loss = (x * y).sum()
    a, b = torch.autograd.grad(loss, [x, y])
    return a + 1, b, x.grad is None


@table.snippet(grad=True, breaks=True, min_graphs=0)
def second_derivative_inside(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g * 2


@table.snippet(breaks=True, min_graphs=0, backward=False)
def training_step(x, y):
    w = y.clone().requires_grad_()
    losses = []
    for _ in range(2):
        loss = ((x - w) ** 2).mean()
        (g,) = torch.autograd.grad(loss, w)
        with torch.no_grad():
            w -= 0.1 * g
        losses.append(loss.detach())
    return w.detach(), losses


@table.program(breaks=True, min_graphs=0, backward=False)
def optimizer_step() -> Any:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, momentum=0.9)

    def fn(x):
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return fn, layer


@table.program(args=lambda place: (t(place, (3, 3, 5, 4, 6, 7)[place], 4),), calls=6, recompiles=(1, 2), breaks=True, backward=False)
def gradients_cleared_before_a_backward_pass_of_any_size() -> Any:
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()

    def fn(x):
        layer.zero_grad()
        y = layer(x).sin()
        y.sum().backward()
        return y.detach(), layer.weight.grad.clone()

    return fn, layer


# In fake mode the first branch is captured again on real values, with the gradient that there was.
@table.program(args=lambda place: (t(place, 3 + place, 4),), calls=4, recompiles=(1, 2, 3), breaks=True, min_graphs=0, backward=False)
def gradients_exchanged_and_read() -> Any:
    layer, given = torch.nn.Linear(4, 2), torch.nn.Parameter(torch.full((2, 4), 0.5))
    with torch.no_grad():
        layer.weight.fill_(0.5)
        layer.bias.zero_()

    def fn(x):
        before, layer.weight.grad = layer.weight.grad, None
        seen = layer.weight.grad
        layer.weight.grad = given
        again = layer.weight.grad is given
        y = layer(x).sum()
        layer.weight.grad = given * y
        y = y + layer.weight.grad.sum()
        if y.item() > 1e9:
            raise ValueError
        return before, seen, again, y.detach(), x.shape

    return fn, (layer, given)


# -- hooks on tensors ------------------------------------------------------------------------------------------------
@table.snippet(grad=True, breaks=True, min_graphs=0)
def hook_on_a_fresh_tensor(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sum()


@table.snippet(grad=True, breaks=True, min_graphs=0)
def retained_gradient(x):
    y = x * 2
    y.retain_grad()
    return y, (y * 3).sum()


@table.snippet(breaks=True, min_graphs=0, args=lambda i: (t(i, grad=True),))
def hook_on_an_argument(x):
    handle = x.register_hook(lambda g: g + 1)
    y = x * 2
    if y.dim() == 3:
        handle.remove()
    return y


@table.snippet(grad=True)
def grad_function_read(x):
    y = x * 2
    return y, y.grad_fn is not None, x.grad_fn is None, y.is_leaf


@table.snippet(grad=True, breaks=True, min_graphs=0)
def saved_tensor_hooks(x):
    with torch.autograd.graph.saved_tensors_hooks(lambda v: v * 1, lambda v: v):
        y = x * x
    return y


# -- checkpoints -----------------------------------------------------------------------------------------------------
def block(x, scale=2.0):
    return torch.sin(x) * scale


@table.snippet(grad=True, breaks=True, min_graphs=0)
def checkpoint_not_reentrant(x):
    checkpoint = torch.utils.checkpoint.checkpoint
    return checkpoint(block, x, use_reentrant=False) + checkpoint(block, x, 3.0, use_reentrant=False)


@table.snippet(grad=True, breaks=True, min_graphs=0)
def checkpoint_reentrant(x):
    return torch.utils.checkpoint.checkpoint(block, x, use_reentrant=True) * 2


@table.snippet(grad=True, breaks=True, min_graphs=0)
def transforms(x):
    return torch.func.grad(lambda v: (v**2).sum())(x.detach()), torch.vmap(lambda row: row * 2)(x), torch.func.vjp(torch.sin, x.detach())[0]


@table.snippet(grad=True)
def detach_in_the_middle(x):
    y = torch.relu(x * 2)
    return y + (y.round() - y).detach()


@table.snippet(grad=True)
def results_that_share_a_graph(x, y):
    z = x * y
    return {"a": z.sum(), "b": [z, x.detach()], "c": z}


@table.snippet(breaks=True, grad=True, min_graphs=0, backward=False)
def wrong_arguments_of_a_gradient(x):
    y = (x * 2).sum()
    try:
        torch.autograd.grad(create_graph=True)
    except TypeError as e:
        missing = str(e)
    (g,) = torch.autograd.grad(y, [x], None, None, True)
    return g, missing


# -- leaves that are made where no gradients are asked for -------------------------------------------------------------
def gradients(wanted: bool) -> Any:
    return lambda state: torch._C._set_grad_enabled(wanted)


def leaf(x):
    z = torch.zeros_like(x).requires_grad_()
    z.add_(1)
    return (x + z).relu(), z.requires_grad, (x + z).requires_grad


def leaf_that_leaves(x):
    z, detached = torch.zeros_like(x).requires_grad_(), x.detach().requires_grad_()
    unmarked = torch.ones(3).requires_grad_().requires_grad_(False)
    return z, z * 2, z[0], z.view(-1), detached, unmarked, z.detach(), z.is_leaf, detached is x


def leaf_and_gradients(x):
    z = torch.zeros_like(x).requires_grad_()
    y = x * z
    with torch.enable_grad():
        w = (z * 3).sum()
    return y, w, z, torch.autograd.grad(w, z)[0]


def leaf_and_a_break(x):
    z = torch.zeros_like(x).requires_grad_()
    print(z.requires_grad)
    y = z + x
    torch._C._set_grad_enabled(True)
    try:
        return y, z * 2, z
    finally:
        torch._C._set_grad_enabled(False)


def leaf_of_a_view(x):
    base = torch.zeros(3, 4)
    part = base[1].requires_grad_()
    return x + part, part, base


def leaf_of_an_argument(x):
    return x.requires_grad_() * 2, x


def leaf_of_whole_numbers(x):
    try:
        torch.zeros(3, dtype=torch.long).requires_grad_()
    except RuntimeError as error:
        return x * 2, str(error)


OFF = {"change": {0: gradients(False)}}
for body in (leaf, leaf_that_leaves):
    table.snippet(**OFF, max_graphs=1)(body)
for body in (leaf_and_gradients, leaf_and_a_break, leaf_of_a_view, leaf_of_an_argument, leaf_of_whole_numbers):
    table.snippet(**OFF, breaks=True)(body)


@table.snippet(change={1: gradients(False), 3: gradients(True)}, calls=4, recompiles={1}, breaks=True)
def leaf_and_the_grad_mode(x):
    z = torch.ones(4).requires_grad_()
    return x * z, z.requires_grad, (x * z).requires_grad


# No backend is shown graphs that give such a view: AOTAutograd asks for its history.
@table.program(args=lambda place: (t(place, 4, 3, grad=True),), breaks=True, backward=False, min_graphs=0)
def a_view_without_a_history_that_is_written_into():
    def fn(p):
        with torch.no_grad():
            m = p.view(12)
            m.add_(p.sin().cos().tanh().sigmoid().view(12))
            torch._dynamo.graph_break()
            m.mul_(2.0)
            n = m.sin().cos().tanh()
        try:
            return n, m.grad_fn
        except RuntimeError as e:
            return n, m.detach(), str(e)

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_autograd(program: Program, twin: str) -> None:
    check(program, twin)
