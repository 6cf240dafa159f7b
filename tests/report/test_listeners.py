"""Listeners hear events in users' calls: what they raise is logged, and raised in none."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fineline
from fineline.report.events import LISTENERS, Event

X = torch.ones(3)


def inner(x: torch.Tensor) -> torch.Tensor:
    return x.sin() * x.sum().item()


def test_a_listener_that_raises_is_logged_once_and_the_others_hear_all(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []

    def fails(event: Event) -> None:
        raise ValueError(event.kind)

    monkeypatch.setattr(LISTENERS, "all", (fails, heard.append))
    compiled = fineline.compile(inner, backend="eager")
    assert torch.equal(compiled(X), inner(X)) and torch.equal(compiled(torch.ones(4)), inner(torch.ones(4)))
    assert {event.kind for event in heard} >= {"graph", "break", "program", "recompile"}
    [told] = [record.getMessage() for record in caplog.records if "lack events" in record.getMessage()]
    assert "fails raises ValueError: " in told


def test_a_log_that_fails_too_is_no_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RecursionError

    def fails(event: Event) -> None:
        raise RecursionError

    monkeypatch.setattr(LISTENERS, "all", (fails,))
    log, broken = logging.getLogger("fineline"), Broken()
    log.addHandler(broken)
    try:
        assert torch.equal(fineline.compile(inner, backend="eager")(X), inner(X))
    finally:
        log.removeHandler(broken)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_what_ends_the_process_passes(error: type, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(event: Event) -> None:
        raise error

    monkeypatch.setattr(LISTENERS, "all", (interrupted,))
    with pytest.raises(error):
        fineline.compile(lambda x: x.sin(), backend="eager")(X)


PROGRAM = """\
import subprocess, sys
import torch

def sum_of(x, n):
    return sum_of(x + 1, n - 1) if n else x.sin()

if len(sys.argv) > 1:
    print(float(torch.compile(lambda x: sum_of(x, 450), backend="eager")(torch.zeros(()))) == float(torch.tensor(450.0).sin()))
else:
    subprocess.run([sys.executable, __file__, "again"], check=True)
"""


def test_deep_recursion_in_a_process_that_passes_its_events_on(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "fineline", "run", "--report", "out.html", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
    assert "sum_of" in (tmp_path / "out.html").read_text()
