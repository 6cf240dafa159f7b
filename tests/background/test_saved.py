"""Saved captures under `wait=False`: neither a loaded program nor the writing of the cache has a call wait for the backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fineline
from fineline.background.queue import QUEUE
from fineline.errors import BackendFailed
from fineline.saving import artifacts
from tests.background.gates import LONGEST, Gate, captured

X = torch.linspace(-1, 1, 6)
GATE = Gate()


def step(x):
    return (x.sin() + x.cos()).relu() * 2


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """A file with a program that the gate, which is closed again, has compiled."""
    GATE.open()
    compiled = fineline.compile(step, backend=GATE, wait=False)
    compiled(X), fineline.wait(LONGEST), compiled(X)
    assert fineline.save(compiled, tmp_path / "step.captures") == 1
    GATE.may_go.clear()
    GATE.graphs = GATE.runs = 0
    yield tmp_path / "step.captures"
    GATE.open()
    fineline.wait(LONGEST)
    GATE.error = None


def kinds(compiled) -> list[str]:
    return [event.kind for event in fineline.report(compiled).events]


def test_a_loaded_program_runs_as_it_was_captured_until_its_graph_is_compiled(path: Path) -> None:
    loaded = fineline.load(path, step)
    for _ in range(3):
        assert torch.equal(loaded(X), step(X))
    assert GATE.runs == 0 and not loaded.ready()
    GATE.open()
    assert fineline.wait(LONGEST) and loaded.ready() and GATE.threads[-1] == "fineline-compile"
    for n in (1, 2):
        assert torch.equal(loaded(X), step(X)) and GATE.runs == n
    assert kinds(loaded) == ["loaded", "takeover"] and GATE.graphs == 1


def test_a_loaded_program_whose_sizes_vary(path: Path) -> None:
    """It waits for nothing either; what its backend assumes about sizes is checked at each run."""

    def assuming(gm, examples):
        assert bool(examples[-1].shape[0] < 100)

    GATE.open()
    compiled = fineline.compile(step, backend=GATE, wait=False, dynamic=True)
    compiled(X), fineline.wait(LONGEST), compiled(X)
    assert fineline.save(compiled, path) == 1
    GATE.may_go.clear()
    GATE.graphs = GATE.runs = 0
    GATE.inside, before = assuming, GATE.inside
    try:
        loaded = fineline.load(path, step)
        for n in (6, 3, 200):
            x = torch.linspace(-1, 1, n)
            assert torch.equal(loaded(x), step(x))
        assert GATE.runs == 0 and not loaded.ready()
        GATE.open()
        assert fineline.wait(LONGEST) and loaded.ready() and GATE.threads[-1] == "fineline-compile"
    finally:
        GATE.inside = before
    for n, runs in ((6, 1), (3, 2), (200, 2), (7, 3)):
        x = torch.linspace(-1, 1, n)
        assert torch.equal(loaded(x), step(x)) and GATE.runs == runs
    assert kinds(loaded) == ["loaded", "takeover"] and GATE.graphs == 1


def test_the_error_of_a_loaded_programs_backend(path: Path) -> None:
    loaded = fineline.load(path, step)
    GATE.error = ValueError("no such kernel")
    assert torch.equal(loaded(X), step(X))
    GATE.open()
    assert fineline.wait(LONGEST)
    for _ in range(2):
        with pytest.raises(BackendFailed, match="no such kernel"):
            loaded(X)


def test_a_loaded_program_does_not_wait_for_another_graph(path: Path) -> None:
    busy, loaded = Gate(), fineline.load(path, step)
    other = fineline.compile(lambda x: x + 1, backend=busy, wait=False)
    other(X)
    assert busy.began.wait(LONGEST)
    assert torch.equal(loaded(X), step(X)) and GATE.graphs == 0
    busy.open(), GATE.open()
    assert fineline.wait(LONGEST)
    assert torch.equal(loaded(X), step(X)) and fineline.wait(LONGEST) and torch.equal(loaded(X), step(X)) and GATE.runs == 1


def test_the_cache_is_written_without_compiled_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINELINE_CACHE_DIR", str(tmp_path))
    compiled_for_the_file: list[object] = []
    monkeypatch.setattr(artifacts, "artifact_of", lambda *args: compiled_for_the_file.append(args))
    for wait in (False, True):
        compiled = fineline.compile(step, backend="inductor" if not wait else "aot_eager", wait=wait)
        with QUEUE.held():
            assert torch.equal(captured(compiled, X), step(X)) and len([*tmp_path.iterdir()]) == 1 + wait
            fineline.reset()
        assert len(compiled_for_the_file) == wait
