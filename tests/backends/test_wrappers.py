"""Inductor with tensors of wrapper subclasses: results, gradients and trained weights are those of eager code; values and sizes change from call to call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.testing._internal.two_tensor import TwoTensor

import fineline
from tests.oracle import t

# The rows at each call: other values twice, then another size.
ROWS = (4, 4, 6)


def inner(x: Any) -> list[Tensor]:
    """Returns plain tensors that say all about ``x``."""
    if x is None:
        return []
    if isinstance(x, (tuple, list)):
        return [part for item in x for part in inner(item)]
    if isinstance(x, TwoTensor):
        return [x.a.detach(), x.b.detach()]
    if x.is_nested:
        return [x.values().detach(), x.offsets()]
    return [x.detach()]


def compare(call: Callable, expected: Callable, make: Callable[[int, int], Tensor], held: Any = ((), ()), backward: bool = False) -> None:
    """Calls both with the same values; compares results, and after a backward pass the gradients of arguments and of ``held``, the tensors of each."""
    for place, rows in enumerate(ROWS):
        seen = []
        for fn, tensors in ((call, held[0]), (expected, held[1])):
            x = make(place, rows)
            out = fn(x)
            kinds = [type(out), out.shape[-1], out.requires_grad]
            if backward:
                (out.values() if out.is_nested else out).square().sum().backward()
            seen.append((kinds, inner([out, x.grad, *[p.grad for p in tensors]])))
        assert seen[0][0] == seen[1][0]
        torch.testing.assert_close(seen[0][1], seen[1][1])


def inductor(fn: Any, **options: Any) -> Any:
    return fineline.compile(fn, backend="inductor", fullgraph=True, **options)


def check_graphs(compiled: Any, n: int) -> None:
    """Checks that there are so many graphs, and that Inductor has compiled them."""
    found = counters["inductor"]
    assert len(fineline.report(compiled).graphs) == n <= found["fxgraph_cache_hit"] + found["fxgraph_cache_miss"]


@pytest.fixture(autouse=True)
def no_counts() -> None:
    counters.clear()


OPTIONS = pytest.mark.parametrize("options", [{}, {"options": {"first_call": "compiled"}}, {"dynamic": True}], ids=["live", "fake", "dynamic"])


def by_size(options: dict[str, Any]) -> int:
    """Returns how many graphs there are for sizes that are constants at first."""
    return 1 if "dynamic" in options else 2


# -- TwoTensor -----------------------------------------------------------------------------------------------------------------
def two(place: int, rows: int, grad: bool = False) -> Tensor:
    made: Any = TwoTensor(t(2 * place, rows, 8), t(2 * place + 1, rows, 8))
    return made.requires_grad_(grad)


def mlp(x: Any, w: Any) -> Any:
    return ((x @ w).relu() + x).sin()


@OPTIONS
def test_two_tensors(options: dict[str, Any]) -> None:
    compiled = inductor(mlp, **options)
    w = t(9, 8, 8)
    with torch.no_grad():
        compare(lambda x: compiled(x, w), lambda x: mlp(x, w), two)
    check_graphs(compiled, by_size(options))


@OPTIONS
def test_gradients_of_two_tensors(options: dict[str, Any]) -> None:
    compiled = inductor(mlp, **options)
    weights: list[Any] = [TwoTensor(t(8, 8, 8), t(9, 8, 8)).requires_grad_() for _ in range(2)]
    compare(
        lambda x: compiled(x, weights[0]), lambda x: mlp(x, weights[1]), lambda place, rows: two(place, rows, True),
        ([weights[0]], [weights[1]]), backward=True,
    )  # fmt: skip
    check_graphs(compiled, by_size(options))


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(TwoTensor(t(8, 8, 8) / 4, t(9, 8, 8) / 4))  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return (x @ self.weight).tanh()


def test_training_a_module_whose_parameters_are_two_tensors() -> None:
    modules = Wrapped(), Wrapped()
    compiled = inductor(modules[0])
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.1) for module in modules]
    for place, rows in enumerate(ROWS):
        for call, optimizer in zip((compiled, modules[1]), optimizers, strict=True):
            call(t(place, rows, 8)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(inner(modules[0].weight), inner(modules[1].weight))
    check_graphs(compiled, 2)


# -- torchao ---------------------------------------------------------------------------------------------------------------------
@OPTIONS
def test_int8_weights(options: dict[str, Any]) -> None:
    quantization = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 64)).eval()
    quantization.quantize_(model, quantization.Int8WeightOnlyConfig())
    compiled = inductor(model, **options)
    with torch.no_grad():
        compare(compiled, model, lambda place, rows: t(place, rows, 64))
    check_graphs(compiled, by_size(options))
    assert type(model[0].weight) is not nn.Parameter


# -- jagged tensors --------------------------------------------------------------------------------------------------------------
def jagged(place: int, rows: int, grad: bool = False) -> Tensor:
    """Returns a tensor of three parts; the longest has so many rows."""
    parts = [t(3 * place + i, n, 8) for i, n in enumerate((rows, 2, rows - 1))]
    return torch.nested.nested_tensor(parts, layout=torch.jagged, requires_grad=grad)


@OPTIONS
def test_a_linear_layer_on_jagged_tensors(options: dict[str, Any]) -> None:
    layer = nn.Linear(8, 8)
    compiled = inductor(lambda x: layer(x).relu(), **options)
    with torch.no_grad():
        compare(compiled, lambda x: layer(x).relu(), jagged)
    check_graphs(compiled, 1)


@OPTIONS
def test_gradients_of_a_linear_layer_on_jagged_tensors(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layers = nn.Linear(8, 8), nn.Linear(8, 8)
    layers[1].load_state_dict(layers[0].state_dict())
    compiled = inductor(lambda x: layers[0](x).relu(), **options)
    compare(
        compiled, lambda x: layers[1](x).relu(), lambda place, rows: jagged(place, rows, True),
        ([*layers[0].parameters()], [*layers[1].parameters()]), backward=True,
    )  # fmt: skip
    check_graphs(compiled, 1)
