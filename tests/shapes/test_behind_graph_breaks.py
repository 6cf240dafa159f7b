"""Symbolic sizes behind graph breaks: what operators give there is kept only in segments that go on for long."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from fineline.graph import fake


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
