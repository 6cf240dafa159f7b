"""``fineline.testing.assert_ledger``: of callables that are compiled or not, what the error says, and updates."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import torch

import fineline
from fineline.errors import BadLedger, FinelineError, LedgerDiffers
from fineline.testing import assert_ledger

X = torch.ones(3)


def noisy(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    print("loading", end="\r")
    return x * scale


class Net(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.sum().item()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "breaks.toml").write_text("version = 1\n")
    return tmp_path / "breaks.toml"


def test_the_error_names_all_that_is_new(path: Path) -> None:
    line = inspect.getsourcelines(noisy)[1] + 1
    with pytest.raises(AssertionError) as e:
        assert_ledger(noisy, [X], {"scale": 2.0}, path=path)
    assert type(e.value) is LedgerDiffers and e.value.id == "FL220" and e.value.where == str(path)
    text = str(e.value)
    for part in ("FL220: not in the ledger: 1 of 1 findings", "FL411", "noisy", f"{__file__.rpartition('/')[2]}:{line}", "print can't be captured",
                 "Move the call out of the region", "update=True", "FINELINE_LEDGER_UPDATE=1"):  # fmt: skip
        assert part in text, text


def test_updates(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.unlink()
    with pytest.raises(BadLedger, match="FL219"):
        assert_ledger(noisy, [X], path=path)
    assert_ledger(noisy, [X], path=str(path), update=True)
    assert_ledger(noisy, (X,), path=path)
    for value in ("0", ""):
        monkeypatch.setenv("FINELINE_LEDGER_UPDATE", value)
        with pytest.raises(LedgerDiffers):
            assert_ledger(Net(), [X], path=path)
    monkeypatch.setenv("FINELINE_LEDGER_UPDATE", "1")
    assert_ledger(Net(), [X], path=path)
    assert "FL411" not in path.read_text() and "Net.forward" in path.read_text()


def test_what_is_gone_is_no_failure(path: Path) -> None:
    assert_ledger(noisy, [X], path=path, update=True)
    assert_ledger(torch.sin, [X], path=path)
    assert_ledger(lambda: torch.ones(2) + 1, path=path)


def test_compiled_callables(path: Path) -> None:
    step = fineline.compile(lambda x: x + 1, backend="eager")
    step(X)
    assert_ledger(step, path=path)
    assert_ledger(step, [X], path=path)
    with pytest.raises(LedgerDiffers, match=r"x: sizes \(3,\) -> \(4,\)"):
        assert_ledger(step, [torch.ones(4)], path=path)
    # It has happened.
    with pytest.raises(LedgerDiffers, match="recompile FL407"):
        assert_ledger(step, path=path)
    net = fineline.compile(Net(), backend="eager")
    with pytest.raises(LedgerDiffers, match="Net.forward"):
        assert_ledger(net, [X], path=path)
    with pytest.raises(LedgerDiffers, match="Net.forward"):
        assert_ledger(net, path=path)
    fineline.reset()
    assert_ledger(net, path=path)


def test_errors_of_the_call_and_of_the_arguments(path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        assert_ledger(lambda: 1 // 0, path=path)
    with pytest.raises(FinelineError, match="FL201"):
        assert_ledger(3, path=path)  # type: ignore[arg-type]
    strict = fineline.compile(noisy, backend="eager", fullgraph=True)
    with pytest.raises(fineline.errors.Unsupported, match="FL102"):
        assert_ledger(strict, [X], path=path)


def test_where_pytorchs_names_are_fineline(path: Path) -> None:
    fineline.install()
    try:
        with pytest.raises(AssertionError, match="FL220"):
            assert_ledger(torch.compile(Net(), backend="eager"), [X], path=path)
        path.write_text("")
        with pytest.raises(BadLedger, match="FL218"):
            assert_ledger(noisy, [X], path=path)
    finally:
        fineline.uninstall()
