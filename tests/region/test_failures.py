"""What a call raises whose graph fails: the user's exception, from the user's lines, however the call ran before."""

from __future__ import annotations

import logging
import traceback
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import t

HERE = __file__


def picks(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x * 2
    return y[0].gather(0, i)  # the line that fails


def in_a_mode(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return picks(x, i) + 1


def behind_a_break(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    y = x + 1
    fineline.graph_break()
    return picks(y, i)


def with_random_numbers(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return picks(x + torch.rand(4), i)


def with_a_write(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return picks(x, i)


def lines(error: BaseException) -> list[str]:
    """The functions of this file that the traceback shows."""
    return [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename == HERE and f.name != "outcome"]


def outcome(fn: Any, bad: int = 99) -> Any:
    try:
        fn(t(), torch.tensor([bad]))
    except Exception as error:
        return type(error), str(error), error.__context__, error.__cause__, torch.is_grad_enabled(), lines(error)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [picks, in_a_mode, behind_a_break], ids=lambda f: f.__name__)
def test_the_users_lines_are_shown(fn: Any, backend: str) -> None:
    expected = outcome(fn)
    compiled = fineline.compile(fn, backend=backend)
    assert outcome(compiled)[0] is expected[0]
    for _ in range(2):
        compiled(t(), torch.tensor([1]))
        assert outcome(compiled) == expected
        assert torch.equal(compiled(t(), torch.tensor([2])), fn(t(), torch.tensor([2])))


@pytest.mark.parametrize("fn", [with_random_numbers, with_a_write], ids=lambda f: f.__name__)
def test_what_can_be_seen_happens_once(fn: Any) -> None:
    def after(call: Any) -> Any:
        torch.manual_seed(0)
        x = t()
        with pytest.raises(RuntimeError) as error:
            call(x, torch.tensor([99]))
        return str(error.value), x, torch.rand(1)

    compiled = fineline.compile(fn, backend="eager")
    compiled(t(), torch.tensor([1]))
    for a, b in zip(after(compiled), after(fn), strict=True):
        assert a == b if isinstance(a, str) else torch.equal(a, b)


def test_writes_of_python_happen_once() -> None:
    calls: list[int] = []

    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return picks(x, i)

    compiled = fineline.compile(fn, backend="eager")
    compiled(t(), torch.tensor([1]))
    with pytest.raises(RuntimeError):
        compiled(t(), torch.tensor([99]))
    assert len(calls) == 2


def test_a_graph_that_fails_alone_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*args: Any) -> Any:
            raise ArithmeticError("a defect")

        return run

    compiled = fineline.compile(picks, backend=backend)
    with caplog.at_level(logging.WARNING, logger="fineline"):
        for _ in range(2):
            assert torch.equal(compiled(t(), torch.tensor([1])), picks(t(), torch.tensor([1])))
    assert "a compiled graph failed" in caplog.text and "ArithmeticError: a defect" in caplog.text
