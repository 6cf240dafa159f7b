"""Symbolic sizes behind graph breaks: what operators give there is kept only in segments that go on for long."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from fineline.graph import fake
from tests.oracle import Program, Step, check


@pytest.mark.parametrize("unkept", [3, 20, 10_000])
def test_results_are_kept_later_on(unkept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake, "UNKEPT", unkept)
    kept: list[bool] = []
    dispatch = fake.Drawing.__torch_dispatch__

    def heard(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = dispatch(self, *args, **kwargs)
        kept.append(self.cache_enabled)
        return out

    monkeypatch.setattr(fake.Drawing, "__torch_dispatch__", heard)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y = x.flatten() * 2
        fineline.graph_break()
        for _ in range(4):
            y = torch.cat([y[: y.shape[0] // 2], y]).sin()
        return y.sum()

    compiled = fineline.compile(fn, backend="eager", dynamic=True)
    for n in (2, 3, 5, 8):
        x = torch.linspace(-1, 1, 3 * n).view(n, 3)
        assert torch.equal(compiled(x), fn(x))
    # Those before the break are kept from the start; each mode turns once.
    assert kept[0] and (False in kept) and (kept[-1] == (unkept < 10_000))


VIEWS = {
    "flat": lambda x: x.view(-1),
    "split": lambda x: x.view(x.shape[0], -1, 2),
    "ones": lambda x: x.view(1, x.shape[0], 1, 4, 1),
    "merged": lambda x: x.view(x.shape[0] * 4),
    "inferred": lambda x: x.view(2, -1),
    "of another type": lambda x: x.view(torch.int32).view(-1, 2),
    "one element": lambda x: x.sum().view(1, 1),
    "transposed": lambda x: x.t().view(2, 2, x.shape[0]),
    "a part": lambda x: x[1:].view(-1, 2),
    "columns": lambda x: x[:, 1:3].view(-1, 1, 2),
    "nothing": lambda x: x[x.shape[0] :].view(0, 2, 2),
    "too large": lambda x: x.view(x.shape[0], 5),
    "not whole": lambda x: x.view(3, -1),
    "not contiguous": lambda x: x.t().view(-1),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("grad", [False, True])
def test_views(name: str, grad: bool, twin: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        y = x * 2
        fineline.graph_break()
        try:
            z = VIEWS[name](y)
        except RuntimeError as e:
            return str(e)
        y.mul_(3)
        return z, z.stride(), z.storage_offset(), z.is_contiguous(), z._base is y, (z + 1).stride()

    steps = [Step(k, args=lambda _, n=n: (torch.linspace(-1, 1, 4 * n).view(n, 4).requires_grad_(grad),)) for k, n in enumerate((4, 6, 5, 8, 2))]
    check(Program(name, lambda: (fn, None), steps, frozenset(range(5)), breaks=True, backward=False, options={"dynamic": True}), twin)
