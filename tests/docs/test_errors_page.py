"""The page of errors: it is what its script writes, and its programs show the ids, or run as eager code does."""

from __future__ import annotations

import contextlib
import io
import logging
import runpy
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import fineline
from fineline.backends.registry import BACKENDS
from fineline.errors import FinelineError
from fineline.refusals import REFUSALS
from fineline.report.events import LISTENERS, Event

ROOT = Path(__file__).parent.parent.parent
SCRIPT = runpy.run_path(str(ROOT / "docs" / "errors.py"))
PROGRAMS = {id: SCRIPT["cells"](id) for id in REFUSALS}
# `fineline run --explain` hears these events; the program prints what they hold, without the id.
WITHOUT_ID = {"FL003", "FL004"}


@dataclass
class Seen:
    """What a program has shown: the ids of its events, what it has printed, and what it has raised."""

    ids: set[str]
    output: str
    error: Exception | None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Seen]]:
    """Runs a program, after which the process is as it was."""
    backends = BACKENDS._known
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "wave", raising=False)  # what the program for FL425 imports
    log = logging.getLogger("fineline.guards")
    level, handlers = log.level, [*log.handlers]

    def run(text: str) -> Seen:
        heard: list[Event] = []
        monkeypatch.setattr(BACKENDS, "_known", {**backends})
        monkeypatch.setattr(LISTENERS, "all", (*LISTENERS.all, heard.append))
        # As a file of its own: the interpreter reads sources, and rules go by file and by name.
        file = tmp_path / "program.py"
        file.write_text(text)
        module = types.ModuleType("program")
        module.__file__ = str(file)
        monkeypatch.setitem(sys.modules, "program", module)
        torch.manual_seed(0)
        error: Exception | None = None
        with contextlib.redirect_stdout(io.StringIO()) as output, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exec(compile(text, str(file), "exec"), module.__dict__)
            except Exception as e:
                error = e.with_traceback(None)
            finally:
                fineline.reset()
                # A library of operators goes with its last reference.
                module.__dict__.clear()
        return Seen({event.id for event in heard}, output.getvalue(), error)

    yield run
    log.setLevel(level)
    log.handlers[:] = handlers


def test_the_page_is_what_its_script_writes() -> None:
    assert (ROOT / "docs" / "errors.md").read_text() == SCRIPT["page"](), "run docs/errors.py"


def test_each_id_has_its_programs_or_a_reason() -> None:
    assert {id for id, programs in PROGRAMS.items() if not programs} == set(SCRIPT["NOT_SHOWN"])
    assert all([*programs] in ([], ["event"], ["failing", "fixed"]) for programs in PROGRAMS.values())
    assert {path.stem for path in (ROOT / "docs" / "errors").iterdir()} <= set(REFUSALS)
    assert len(SCRIPT["NOT_SHOWN"]) - len(SCRIPT["ELSEWHERE"]) < 6


@pytest.mark.parametrize("id", [id for id, programs in PROGRAMS.items() if programs])
def test_the_id_is_shown(id: str, run: Callable[[str], Seen]) -> None:
    """As an error, in the reason of the error for a graph break where none is allowed, or by an event that the program prints."""
    programs = PROGRAMS[id]
    seen = run(programs.get("failing") or programs["event"])
    if seen.error is not None:
        assert isinstance(seen.error, FinelineError), seen.error
        assert seen.error.id == id or (seen.error.id == "FL102" and f"({id}: " in seen.error.reason), seen.error
    else:
        assert id in seen.ids and (id in seen.output or id in WITHOUT_ID), seen


@pytest.mark.parametrize("id", [id for id, programs in PROGRAMS.items() if "fixed" in programs])
def test_the_fixed_program_is_right(id: str, run: Callable[[str], Seen], monkeypatch: pytest.MonkeyPatch) -> None:
    """It prints what it prints where nothing is compiled."""
    compiled = run(PROGRAMS[id]["fixed"])
    assert compiled.error is None and compiled.output and id not in compiled.ids and id not in compiled.output, compiled
    monkeypatch.setattr(fineline, "compile", lambda fn=None, **how: (lambda fn: fn) if fn is None else fn)
    monkeypatch.setattr(fineline, "export", lambda fn, *args, **how: (fn, None))
    eager = run(PROGRAMS[id]["fixed"])
    assert eager.error is None and eager.output == compiled.output
