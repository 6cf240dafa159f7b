"""A graph that comes again in a later segment, over sizes of its own, is compiled once, where what the backend assumed holds there too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fineline
from tests.oracle import t


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(4, 4), nn.LayerNorm(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x + torch.relu(self.lin(x)))
        fineline.graph_break()
        return y * 2 + x.shape[0]


@fineline.disable
def half(x: torch.Tensor) -> torch.Tensor:
    return x[: x.shape[0] // 2].clone()


def halving(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = half(x * 2)
    return x


def noting(made: list, compiled: Callable = lambda gm, examples: gm.forward) -> Callable:
    def backend(gm: torch.fx.GraphModule, examples: list) -> Any:
        made.append(gm)
        return compiled(gm, examples)

    return backend


@pytest.mark.parametrize("how", [{"dynamic": True}, {"dynamic": True, "first_call": "compiled"}], ids=["live", "compiled"])
def test_equal_blocks(how: dict) -> None:
    net = nn.Sequential(*[Block() for _ in range(6)])
    made: list = []
    options = {k: v for k, v in how.items() if k != "dynamic"}
    compiled = fineline.compile(net, backend=noting(made), dynamic=how["dynamic"], options=options or None)
    for n in (5, 9, 2, 16):
        torch.testing.assert_close(compiled(t(n, n, 4)), net(t(n, n, 4)))
    # The first, whose input has no gradient, one for all in between, and the end.
    assert len(made) == 3


def test_sizes_that_are_given_anew() -> None:
    made: list = []
    compiled = fineline.compile(halving, backend=noting(made), dynamic=True)
    for n in (40, 64, 80):
        assert torch.equal(compiled(t(n, n)), halving(t(n, n)))
    assert len(made) == 1


def rows(inputs: Any) -> Any:
    return next(x for x in inputs if isinstance(x, torch.Tensor)).shape[0]


def watched(gm: torch.fx.GraphModule, holds: Callable[[int], bool], wrong: list) -> Callable:
    """The graph; ``wrong`` gets the sizes that it was not compiled for. (Of what it raised nobody would hear: Python runs the code then.)"""

    def run(*args: Any) -> Any:
        if not holds(rows(args)):
            wrong.append(rows(args))
        return gm(*args)

    return run


def test_what_the_backend_assumed_has_to_hold() -> None:
    made: list = []
    wrong: list = []

    def for_large_ones(gm: torch.fx.GraphModule, examples: list) -> Callable:
        large = bool(rows(examples) > 10)
        return watched(gm, lambda n: (n > 10) == large, wrong)

    compiled = fineline.compile(halving, backend=noting(made, for_large_ones), dynamic=True)
    # 48, 24, 12: one program for all three. 32, 16, 8: one more; each segment guards what its program is for.
    for n, programs in ((48, 1), (32, 2), (56, 2), (32, 2), (20, 2)):
        assert torch.equal(compiled(t(n, n)), halving(t(n, n)))
        assert len(made) == programs and not wrong


def test_what_the_backend_fixed_is_for_one_size() -> None:
    wrong: list = []

    def odd_ones_alone(gm: torch.fx.GraphModule, examples: list) -> Callable:
        fixed = None if rows(examples) % 2 == 0 else int(rows(examples))
        return watched(gm, lambda n: n % 2 == 0 if fixed is None else n == fixed, wrong)

    compiled = fineline.compile(halving, backend=noting([], odd_ones_alone), dynamic=True)
    for n in (24, 20, 22, 26, 20, 24, 40):
        assert torch.equal(compiled(t(n, n)), halving(t(n, n)))
        assert not wrong


@fineline.disable
def taken(x: torch.Tensor, count: int) -> torch.Tensor:
    return x[:count].clone()


def known_in_one(x: torch.Tensor, counts: tuple[int, ...]) -> torch.Tensor:
    for count in counts:
        limit = 6 if count == counts[0] else 0
        y = x * 2 if x.shape[0] > limit else x - 1
        x = taken(y, count)
    return x


def test_what_was_known_of_the_sizes_is_compared() -> None:
    made: list = []
    wrong: list = []

    def for_what_is_known(gm: torch.fx.GraphModule, examples: list) -> Callable:
        # Asks, and adds no guard.
        n = rows(examples)
        known = n.node.shape_env._maybe_evaluate_static((n > 6).node.expr) if type(n) is torch.SymInt else None
        return watched(gm, lambda n: known is None or bool(known) == (n > 6), wrong)

    for counts in ((9, 8), (4, 3), (9, 4, 3), (8, 9, 4, 2)):
        compiled = fineline.compile(known_in_one, backend=noting(made, for_what_is_known), dynamic=True)
        for n in (12, 9, 5, 20, 7, 4):
            assert torch.equal(compiled(t(n, n), counts), known_in_one(t(n, n), counts))
            assert not wrong
    assert len(made) > 4


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_with_compilers(backend: str) -> None:
    net = nn.Sequential(*[Block() for _ in range(4)])
    compiled = fineline.compile(net, backend=backend, dynamic=True)
    for n in (5, 9, 2):
        x, y = t(n, n, 4).requires_grad_(), t(n, n, 4).requires_grad_()
        out, expected = compiled(x), net(y)
        torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-4)
        out.sum().backward()
        grads = [p.grad.clone() for p in net.parameters() if p.grad is not None]
        net.zero_grad()
        expected.sum().backward()
        torch.testing.assert_close(grads, [p.grad for p in net.parameters() if p.grad is not None], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(x.grad, y.grad, rtol=1e-4, atol=1e-4)
        net.zero_grad()
