"""Tensors of wrapper subclasses that a checkpoint takes and gives, that the captured code makes as leaves of autograd, and that have views."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from tests.language.torch.test_modes_and_functions import Passing
from tests.language.torch.test_modes_around_calls import hidden
from tests.language.torch.test_wrapper_subclasses import Scaled, half, two, twos
from tests.oracle import Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}


def run(fn: Any, *args: Any, **options: Any) -> Any:
    return checkpoint(fn, *args, use_reentrant=False, **options)


# -- checkpoints ---------------------------------------------------------------------------------------------------------------------
@table.snippet(args=twos(grad=True), options=FULL)
def a_checkpoint(x: Any) -> Any:
    return run(lambda x: torch.sin(x) * 2, x) + 1


@table.snippet(args=twos(2, grad=True), options=FULL)
def a_checkpoint_that_gives_several(x: Any, y: Any) -> Any:
    z, total = run(lambda x, y: (x @ y.mT, [x.sum(), y]), x, y)
    return z * 2, total[0], total[1] + 1


@table.snippet(args=twos(grad=True), options=FULL)
def a_checkpoint_of_a_closure(x: Any) -> Any:
    y = x * 2
    return run(lambda: torch.sin(y) + x)


@table.snippet(args=lambda place: (t(place, grad=True), half(place + 1, 3, 4)), options=FULL)
def a_checkpoint_with_a_weight(x: Any, w: Any) -> Any:
    return run(lambda x: F.linear(x, w), x) + 1


@table.snippet(args=twos(grad=True), options=FULL)
def a_checkpoint_of_views(x: Any) -> Any:
    y = run(lambda x: x.view(-1)[2:6], x.view(4, 3))
    return y * 2, run(lambda x: x, x) * 3


@table.snippet(args=twos(), options=FULL)
def a_checkpoint_that_reads_inner_tensors(x: Any) -> Any:
    return run(lambda x: x.a.sin() + x.b + (x * 2).a, x)


@table.snippet(args=twos(), backward=False)
def a_checkpoint_that_writes(x: Any) -> Any:
    y = x * 2
    return run(lambda y: y.mul_(3) + 1, y), y


@table.snippet(args=lambda place: (t(place, grad=True),), breaks=True, min_graphs=0)
def a_checkpoint_that_makes_a_wrapper(x: Any) -> Any:
    return run(lambda x: TwoTensor(x.detach(), x.detach() + 1) * 2, x)


@table.snippet(args=lambda place: (t(place),), options=FULL)
def a_checkpoint_of_what_the_code_has_made(x: Any) -> Any:
    w = TwoTensor(x, x + 1)
    return run(lambda: w * 2), w


@table.snippet(args=lambda place: (Scaled(t(place), 2.0 + place // 2),), calls=5, recompiles=(2, 4), must_recompile=True, options=FULL)
def a_checkpoint_with_another_context(x: Any) -> Any:
    return run(lambda x: x.sin() + 1, x)


@table.snippet(args=lambda place: (two(place, grad=place % 2 == 1),), calls=4, recompiles=(1,), must_recompile=True, options=FULL)
def a_checkpoint_with_and_without_gradients(x: Any) -> Any:
    return run(lambda x: x.sin() * x, x)


@table.snippet(
    args=lambda place: (two(place), t(place), Scaled(t(place), 1.0))[place : place + 1], calls=3, recompiles=(1, 2), must_recompile=True, options=FULL
)
def a_checkpoint_with_other_classes(x: Any) -> Any:
    return run(lambda x: x.sin() + 1, x)


@table.snippet(args=lambda place: (two(place, place % 3 + 2, 4 + place, grad=True),), calls=5, recompiles=(1, 2), options=FULL)
def a_checkpoint_of_other_sizes(x: Any) -> Any:
    return run(lambda x: x.sum(0) * x.shape[0], x)


@table.snippet(args=lambda place: (TwoTensor(two(place), two(place + 1)).requires_grad_(),), options=FULL)
def a_checkpoint_of_nested_ones(x: Any) -> Any:
    return run(lambda x: x.sin() + x, x)


@table.snippet(args=twos(grad=True), options=FULL)
def a_checkpoint_under_a_mode(x: Any) -> Any:
    with Passing():
        return run(lambda x: torch.sin(x) * 2, x)


@table.snippet(args=twos(grad=True), options=FULL)
def a_checkpoint_in_a_checkpoint(x: Any) -> Any:
    return run(lambda x: run(lambda x: x.sin() * 2, x) + x, x)


def _step(state: Any) -> None:
    with torch.no_grad():
        for p in state.parameters():
            p.mul_(1.5)


@table.program(args=lambda place: (t(place),), change={2: _step}, calls=4, options=FULL)
def a_checkpoint_of_a_module() -> Any:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    for k, module in enumerate((model[0], model[2])):
        module.weight = nn.Parameter(two(k, *module.weight.shape))
        module.bias = nn.Parameter(two(k + 5, *module.bias.shape))
    return lambda x: run(model, x).sum(), model


# -- strides -------------------------------------------------------------------------------------------------------------------------
@table.snippet(args=lambda place: (t(place, place % 3 + 2, 4), two(place, 4, 5)), calls=5, recompiles=(1, 2), options=FULL, backward=False)
def strides_of_what_parts_compute(x: Any, w: Any) -> Any:
    y = (x @ w.a).mT
    return y, y.is_contiguous(), y.stride(), (x @ w.b).is_contiguous()


@table.snippet(args=lambda place: (two(place, place % 3 + 2, 4),), calls=5, recompiles=(1, 2), breaks=True, backward=False, min_graphs=0)
def strides_of_what_a_class_computes(x: Any) -> Any:
    y = (x * 2).a.mT
    return y, y.is_contiguous(), y.stride()


# -- leaves --------------------------------------------------------------------------------------------------------------------------
class Required(Scaled):
    """Requires a gradient if its inner tensor does."""

    @staticmethod
    def __new__(cls, data_in: Tensor, factor: Any) -> Any:
        how = {"dtype": torch.float32, "device": data_in.device, "requires_grad": data_in.requires_grad}
        return torch.Tensor._make_wrapper_subclass(cls, data_in.shape, strides=data_in.stride(), **how)


class Always(Scaled):
    @staticmethod
    def __new__(cls, data_in: Tensor, factor: Any) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, data_in.shape, requires_grad=True)


def flipping(place: int) -> tuple:
    return (t(place, grad=place % 2 == 0),)


@table.snippet(args=flipping, calls=4, recompiles=(1,), must_recompile=True, options=FULL)
def a_leaf(x: Any) -> Any:
    y = Required(x * 2, 2.0)
    return y, y.requires_grad, y.is_leaf, x + 1


@table.snippet(args=flipping, calls=4, recompiles=(1,), options=FULL)
def a_leaf_used_without_gradients(x: Any) -> Any:
    with torch.no_grad():
        y = Required(x, 2.0)
        z = y.sin() * 2
    return y, z, z.requires_grad, x * 3


@table.snippet(args=flipping, calls=4, recompiles=(1,), breaks=True, min_graphs=0)
def a_leaf_used_with_gradients(x: Any) -> Any:
    y = Required(x * 2, 2.0)
    return y, y.sin() * 2, x + 1


@table.snippet(args=lambda place: (t(place),), calls=3, breaks=True, min_graphs=0)
def a_leaf_whose_result_is_kept(x: Any) -> Any:
    return Always(x * 2, 2.0).sum()


@table.snippet(args=lambda place: (t(place),), breaks=True, backward=False, min_graphs=0)
def a_leaf_with_views(x: Any) -> Any:
    with torch.no_grad():
        y = Always(x, 2.0)
        v = y.detach()
    return y, v, y.requires_grad, x + 1


@table.snippet(args=lambda place: (t(place),), breaks=True, recompiles=(1,), backward=False)
def a_leaf_across_a_graph_break(x: Any) -> Any:
    y = Always(x * 2, 2.0)
    print("a")
    return y, y.requires_grad, y.data_in + 1


# AOTAutograd gives a view of a wrapper subclass's tensor without its base.
KEPT = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "counted", "reported")


# -- views ---------------------------------------------------------------------------------------------------------------------------
def bases(value: Any) -> Any:
    """Returns, for each tensor in a result, the place of its base among them."""
    return [next((i for i, y in enumerate(value) if x._base is y), None) for x in value]


def with_bases(fn: Any, **marks: Any) -> Any:
    """Makes a program whose result tells which tensors are views of which."""

    def make(compile: Any) -> Any:
        compiled = hidden(compile(fn))

        def call(x: Any) -> Any:
            value = compiled(x)
            return bases(value), [y._version for y in value], value

        return call

    make.__name__ = fn.__name__  # type: ignore[attr-defined]
    table.program(raw=True, args=lambda place: (t(place),), backward=False, twins=KEPT, **marks)(make)
    return fn


@with_bases
def a_view(x: Any) -> Any:
    y = TwoTensor(x, x + 1)
    return y, y[0], y.view(-1), y.a


@with_bases
def a_view_of_a_view(x: Any) -> Any:
    y = TwoTensor(x * 2, x + 1)
    v = y.view(-1)
    return v[1:5], y, v


@with_bases
def a_written_view(x: Any) -> Any:
    y = TwoTensor(x * 2, x + 1)
    v = y.view(-1)
    v.add_(1)
    return y, v


@functools.partial(with_bases, breaks=True, min_graphs=0)
def a_written_view_of_an_input(x: Any) -> Any:
    y = TwoTensor(x, x + 1)
    v = y.view(-1)
    v.add_(1)
    return y, v, x


@with_bases
def a_written_base(x: Any) -> Any:
    y = TwoTensor(x * 2, x + 1)
    v = y[1]
    y.mul_(2)
    return v, y


@with_bases
def a_view_that_is_gone(x: Any) -> Any:
    y = TwoTensor(x, x + 1)
    return y, y.view(-1) * 2


@with_bases
def a_base_that_is_gone(x: Any) -> Any:
    return (TwoTensor(x, x + 1).view(-1),)


@with_bases
def a_view_of_one_with_an_attribute(x: Any) -> Any:
    y: Any = TwoTensor(x, x + 1)
    y.note = [1]
    v = y[0]
    y.other = y.note
    return y, v


@functools.partial(with_bases, breaks=True, min_graphs=0)
def a_view_of_one_that_has_changed(x: Any) -> Any:
    y = TwoTensor(x, x + 1)
    v = y[0]
    y.a = x * 5
    return y, v


@with_bases
def views_of_two(x: Any) -> Any:
    y, z = TwoTensor(x, x + 1), Scaled(x * 2, 3.0)
    return z, y, y[0], z[0], y[1]


@table.snippet(args=lambda place: (t(place),), options=FULL, max_graphs=1, backward=False)
def made_of_an_input_and_written_into(x: Any) -> Any:
    y, z = TwoTensor(x, x * 2), TwoTensor(x + 1, x)
    y.add_(1)
    a = y.a + 1
    y.mul_(z)
    return y, a, z


@table.snippet(args=lambda place: (t(place),), options=FULL, max_graphs=1, backward=False)
def made_of_an_input_and_written_in_place(x: Any) -> Any:
    y = TwoTensor(x, x)
    y[0] = 3
    return y, x + 1


@table.snippet(args=lambda place: (t(place),), max_graphs=1, backward=False)
def made_of_an_input_written_into_and_viewed(x: Any) -> Any:
    y = TwoTensor(x, x * 2)
    y.add_(1)
    return y, y[0]


@table.snippet(args=lambda place: (t(place), t(place)), max_graphs=1, backward=False)
def made_of_inputs_that_are_written_into(x: Any, z: Any) -> Any:
    x.add_(1)
    y, w = TwoTensor(x, x * 2), TwoTensor(z, z * 2)
    v = w[0]
    z.mul_(2)
    return y, y[0], w, v


@table.snippet(args=twos(), options=FULL, max_graphs=1, backward=False)
def views_of_an_inner_tensor_that_is_written_into(x: Any) -> Any:
    v = x.a.view(-1)
    v.mul_(2)
    return v, x.b[0], x.a


@table.snippet(args=twos(), options=FULL, max_graphs=1, backward=False)
def a_view_of_an_inner_tensor_of_what_is_written_into(x: Any) -> Any:
    v = x.a[0]
    x.add_(1)
    return v, x.b.t(), x[0]


@table.snippet(args=lambda place: (TwoTensor(two(place), two(place + 1)),), options=FULL, max_graphs=1, backward=False)
def a_view_of_a_wrapper_in_a_wrapper_that_is_written_into(x: Any) -> Any:
    v = x.a[0]
    v.add_(1)
    return v, x.b[0]


@table.snippet(args=lambda place: (t(place),), breaks=True, recompiles=(1,), backward=False, min_graphs=0, twins=KEPT)
def a_view_across_a_graph_break(x: Any) -> Any:
    y = TwoTensor(x, x + 1)
    v = y[0]
    print("a")
    y.mul_(2)
    return y, v * 2, v._base is y


@table.program(args=lambda place: (two(place), t(place)), backward=False)
def results_of_a_class_with_an_override_beside_a_wrapper() -> Any:
    seen: list[str] = []

    class Seeing(Tensor):
        @classmethod
        def __torch_function__(cls, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(fn.__name__)
            return super().__torch_function__(fn, types, args, kwargs or {})

    def fn(x: Any, y: Any) -> Any:
        return x * 2, y.as_subclass(Seeing).sin(), y.as_subclass(Seeing)[1:]

    return fn, seen


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
