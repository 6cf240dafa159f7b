"""Where fakes can't go on and sizes or numbers vary: a graph break at that place, and graphs with symbols around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline

CALLS = 14


class Sub(torch.Tensor):
    pass


@torch.library.custom_op("fineline_tests::times", mutates_args=())
def times(x: torch.Tensor, k: int) -> torch.Tensor:
    return x * k


def body(x: torch.Tensor) -> torch.Tensor:
    return ((x * 2).sin() + 1).cos().exp().tanh().sqrt().abs().neg()


class Needs:
    """Functions of a tensor and a number, some of which look at a parameter."""

    def __init__(self) -> None:
        self.p = torch.nn.Parameter(torch.arange(4.0))
        self.optimizer = torch.optim.SGD([self.p], lr=0.1, momentum=0.9)

    def gradient_is_set(self, x: torch.Tensor, i: int) -> Any:
        self.p.grad = (x * 2).sum(0)
        return body(x * i), self.p.grad

    def gradient_is_set_and_used(self, x: torch.Tensor, i: int) -> Any:
        self.p.grad = x.sum(0) * self.p.detach() * i
        self.optimizer.step()
        return body(x * i), self.p.detach().clone()

    def gradient_is_clipped(self, x: torch.Tensor, i: int) -> Any:
        self.p.grad = (x * i).sum(0)
        return torch.nn.utils.clip_grad_norm_([self.p], 1.0), body(x * i)

    def gradient_is_unscaled(self, x: torch.Tensor, i: int) -> Any:
        self.p.grad = x.sum(0)
        self.p.grad = self.p.grad / i
        return body(x * i), self.p.grad

    def error_is_handled(self, x: torch.Tensor, i: int) -> Any:
        try:
            torch.ones(3) + torch.ones(4)
        except RuntimeError as e:
            return body(x * i), str(e)

    def error_of_a_size_is_handled(self, x: torch.Tensor, i: int) -> Any:
        try:
            x + torch.ones(7, 5)
        except RuntimeError:
            x = x + 1
        return body(x * i)

    def error_of_a_view_is_handled(self, x: torch.Tensor, i: int) -> Any:
        y = body(x)
        try:
            y = y.view(1000, -1)
        except RuntimeError:
            y = y.flatten()
        return body(y * i)

    def finally_runs(self, x: torch.Tensor, i: int) -> Any:
        told = []
        try:
            try:
                torch.ones(2).view(3)
            finally:
                told.append(i)
        except RuntimeError:
            told.append(-i)
        return body(x * i), told

    def vmapped(self, x: torch.Tensor, i: int) -> Any:
        return torch.vmap(lambda a: body(a * i))(x)

    def custom_operator(self, x: torch.Tensor, i: int) -> Any:
        return body(times(x, i))

    def sparse(self, x: torch.Tensor, i: int) -> Any:
        return body((x * i).to_sparse().to_dense())

    def sparse_is_kept(self, x: torch.Tensor, i: int) -> Any:
        s = (x * i).to_sparse()
        return body(x), s.to_dense() + 1

    def resized(self, x: torch.Tensor, i: int) -> Any:
        y = x * i
        y.resize_(2)
        return body(y)

    def numpy_sum(self, x: torch.Tensor, i: int) -> Any:
        return float(body(x * i).numpy().sum() + i)

    def numpy_scalar(self, x: torch.Tensor, i: int) -> Any:
        n = body(x * i).numpy().max()
        return float(n * 2 - 1), body(x)

    def subclass(self, x: torch.Tensor, i: int) -> Any:
        return body((x * i).as_subclass(Sub))

    def data_is_set(self, x: torch.Tensor, i: int) -> Any:
        y = x * i
        y.data = y + 1
        return body(y)


NEEDS = [name for name in vars(Needs) if not name.startswith("_")]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return type(a) is type(b) and torch.equal(a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor))
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    # PyTorch adds numbers up in another order than NumPy.
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-5) if isinstance(a, float) else bool(a == b)


@pytest.mark.parametrize("varies", ["number", "size"])
@pytest.mark.parametrize("name", NEEDS)
def test_graphs_run_in_every_call(name: str, varies: str) -> None:
    made, ran = [0], [0]

    def backend(gm: torch.fx.GraphModule, examples: list) -> Callable:
        made[0] += 1

        def run(*args: Any) -> Any:
            ran[0] += 1
            return gm.forward(*args)

        return run

    fast, plain = fineline.compile(getattr(Needs(), name), backend=backend), getattr(Needs(), name)
    new, each = [], []
    for n in range(2, 2 + CALLS):
        args = (torch.linspace(-1, 1, 12).reshape(3, 4), n) if varies == "number" else (torch.linspace(-1, 1, 4 * n).reshape(n, 4), 3)
        before = made[0], ran[0]
        assert same(fast(*args), plain(*args))
        new.append(made[0] - before[0])
        each.append(ran[0] - before[1])
    assert not any(new[5:]), new
    assert 0 not in each[5:], each
