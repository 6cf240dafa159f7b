"""Symbolic sizes behind graph breaks: what operators give there is kept only in segments that go on for long."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import fineline
from fineline.fake import fake_tensors
from fineline.region import region as regions
from tests.oracle import Program, Step, check


@pytest.mark.parametrize("unkept", [3, 20, 10_000])
def test_results_are_kept_later_on(unkept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fake_tensors, "UNKEPT", unkept)
    kept: dict[bool, list[bool]] = {True: [], False: []}
    dispatch = fake_tensors.Drawing.dispatch

    def heard(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kept[any(map(fake_tensors._is_symbolic, args))].append(self.cache_enabled)
        return dispatch(self, func, types, args, kwargs)

    monkeypatch.setattr(fake_tensors.Drawing, "dispatch", heard)

    def fn(x: torch.Tensor) -> torch.Tensor:
        y, z = x.flatten() * 2, torch.ones(4).exp()
        fineline.graph_break()
        for _ in range(4):
            y = torch.cat([y[: y.shape[0] // 2], y]).sin()
            z = z.sin().cos()
        return y.sum() + z.sum()

    compiled = fineline.compile(fn, backend="eager", dynamic=True)
    for n in (2, 3, 5, 8):
        x = torch.linspace(-1, 1, 3 * n).view(n, 3)
        assert torch.equal(compiled(x), fn(x))
    # Those before the break are kept from the start, and so are those of sizes that do not vary; each mode turns once.
    assert kept[True][0] and (False in kept[True]) and (kept[True][-1] == (unkept < 10_000))
    assert all(kept[False])


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


SIZES = {f"expert {i}": i + 2 for i in range(4)}


@pytest.mark.parametrize("numbers", [False, True])
def test_symbols_stand_for_numbers_and_sizes_alone(numbers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that a text picks has no symbol, a number that it picks has one; behind both, a size that varies has one."""
    experts = torch.nn.ModuleDict({name: torch.nn.Linear(3, 3) for name in SIZES})
    symbolic: list[Any] = []
    symbols = regions.Symbols

    def heard(interp: Any, varying: Any, *options: Any) -> Any:
        symbolic.append(varying)
        return symbols(interp, varying, *options)

    monkeypatch.setattr(regions, "Symbols", heard)

    def fn(x: torch.Tensor, hits: torch.Tensor) -> torch.Tensor:
        for hit in hits:
            name = f"expert {hit[0]}"
            x = x.sin() * SIZES[name] if numbers else experts[name](x).sin()
        return x

    graphs: list[torch.fx.GraphModule] = []

    def backend(gm: torch.fx.GraphModule, inputs: list) -> Any:
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend)
    found: list[tuple[int, int]] = []
    for n, hits in ((4, (1, 0, 2)), (4, (0, 1, 3)), (5, (1, 0, 2)), (6, (1, 0, 2)), (7, (1, 0, 2)), (8, (2, 1, 0))):
        x, picked = torch.linspace(-1, 1, 3 * n).view(n, 3), torch.tensor(hits)[:, None]
        with torch.no_grad():
            assert torch.equal(compiled(x, picked), fn(x, picked))
        found.append((len(symbolic), len(graphs)))
    last = (7, 8) if numbers else (4, 5)
    assert found == [*([(2, 4), (3, 5)] if numbers else [(0, 3), (0, 3)]), last, last, last, last]
