"""The cache: with FINELINE_CACHE_DIR, programs are kept in a folder and found by the next process; without it nothing is written."""

from __future__ import annotations

import os
import stat
import textwrap
from pathlib import Path

import pytest
import torch

import fineline
from fineline.saving import document
from tests.saving.conftest import Project

MODULE = """
        def helper(x):
            return x + 1

        @fineline.compile(backend="eager")
        def step(x):
            y = helper(x)
            print("between")
            return y * x.shape[0]
        """
CALLS = """
        assert torch.equal(step(x), (x + 1) * 3) and torch.equal(step(x[:2]), (x[:2] + 1) * 2)
        print([f"{event.kind} {event.id}" for event in fineline.report(step).events if event.kind in ("graph", "loaded", "stale", "cache", "recompile")])
        """


def last(out: str) -> str:
    return out.splitlines()[-1]


def test_the_next_process_finds_the_programs(project: Project) -> None:
    """Also those that it adds itself; after a change of code it begins anew, with the reason, and a damaged file is replaced."""
    project.write(MODULE)
    folder = project.folder / "cache"
    assert "graph" in last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))
    [file] = folder.iterdir()
    first = last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))
    assert "graph" not in first and "recompile" not in first and "loaded FL012" in first, first
    project.write(MODULE.replace("x + 1", "1 + x"))
    changed = last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))
    assert "stale FL014" in changed and "graph FL001" in changed, changed
    file.write_bytes(file.read_bytes()[:-1])
    damaged = last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))
    assert "cache FL015" in damaged and "graph FL001" in damaged and "loaded" not in damaged, damaged
    assert [*folder.iterdir()] == [file]
    assert "graph" not in last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))


@pytest.mark.later
def test_it_is_off_unless_set(project: Project) -> None:
    project.write(MODULE)
    project.run(textwrap.dedent(CALLS) + "assert not [name for name in sys.modules if name.startswith('fineline.saving')]")
    assert [path.name for path in project.folder.iterdir()] == ["users_code.py"]


@pytest.mark.later
def test_a_folder_that_cannot_be_written(project: Project) -> None:
    project.write(MODULE)
    (project.folder / "cache").write_text("a file")
    out = last(project.run(CALLS, FINELINE_CACHE_DIR=str(project.folder / "cache")))
    assert "cache FL015" in out and "graph FL001" in out, out


@pytest.mark.later
def test_other_options_have_another_file(project: Project) -> None:
    project.write(MODULE)
    folder = project.folder / "cache"
    project.run(CALLS, FINELINE_CACHE_DIR=str(folder))
    project.write(MODULE.replace('backend="eager"', 'backend="eager", dynamic=True'))
    assert "loaded" not in last(project.run(CALLS, FINELINE_CACHE_DIR=str(folder)))
    assert len([*folder.iterdir()]) == 2


# -- in one process: a new region stands for the next one ----------------------------------------------------------------
X = torch.ones(3)
WORD = "a"


def scaled(x):
    return x * len(WORD)


def read_global(x):
    return scaled(x) + 1


def broken(x):
    y = x + 1
    fineline.graph_break()
    return y * len(WORD)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FINELINE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def called(fn=read_global, **options) -> list[tuple[str, str]]:
    """Compiles and calls a function as a new process would; returns the events about the cache and about captures."""
    fineline.reset()
    compiled = fineline.compile(fn, backend="eager", options=options)
    assert torch.equal(compiled(X), fn(X)) and torch.equal(compiled(X), fn(X))
    return [(event.kind, event.reason) for event in fineline.report(compiled).events if event.kind in ("graph", "loaded", "stale", "cache", "limit")]


def kinds(found: list[tuple[str, str]]) -> list[str]:
    return [kind for kind, _ in found]


@pytest.mark.parametrize("fn", [read_global, broken])
def test_programs_of_other_processes_do_not_use_up_the_limit(folder: Path, monkeypatch: pytest.MonkeyPatch, fn) -> None:
    """Each process has another configuration; the file has three programs at most, and no process runs eagerly."""
    for n in range(1, 9):
        monkeypatch.setitem(globals(), "WORD", "a" * n)
        for _ in range(3):
            found = called(fn, recompile_limit=3)
            assert "limit" not in kinds(found), (n, found)
        assert "graph" not in kinds(found) and 1 <= kinds(found).count("loaded") <= 6, (n, found)


def test_the_first_programs_of_this_process_are_dropped_with_those_of_others_but_the_file_has_them_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "WORD", "a")
    called(recompile_limit=2)
    fineline.reset()
    compiled = fineline.compile(read_global, backend="eager", options={"recompile_limit": 2})
    for n in (2, 3, 2, 3):
        monkeypatch.setitem(globals(), "WORD", "a" * n)
        assert torch.equal(compiled(X), read_global(X))
    for n in (2, 3):
        monkeypatch.setitem(globals(), "WORD", "a" * n)
        assert "graph" not in kinds(called(recompile_limit=2))


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="the platform has no user ids")
def test_a_file_that_others_may_have_written_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kinds(called()) == ["graph"] and kinds(called()) == ["loaded"]
    [file] = folder.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.chmod(0o622)
    [(kind, reason), graph] = called()
    assert kind == "cache" and "can be written by others" in reason and graph[0] == "graph"
    assert kinds(called()) == ["loaded"], "it has been replaced"
    monkeypatch.setattr(os, "getuid", lambda: file.stat().st_uid + 1)
    # The superuser may write everywhere.
    assert kinds(called()) == ["loaded"] if file.stat().st_uid == 0 else "another user" in called()[0][1]


def test_no_call_fails_because_of_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called()
    [file] = folder.iterdir()
    file.unlink()
    file.mkdir()
    assert kinds(called()) == ["cache", "graph", "cache"]
    file.rmdir()
    called()

    def fails(*args: object) -> int:
        raise KeyError("a part")

    monkeypatch.setattr(document.SavedCaptures, "add_to", fails)
    [(kind, reason), graph] = called()
    assert kind == "cache" and "KeyError" in reason and graph[0] == "graph"


def test_the_folder_stays_the_same_when_the_process_goes_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FINELINE_CACHE_DIR", "cache")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    fineline.reset()
    compiled = fineline.compile(read_global, backend="eager", dynamic=False)
    compiled(X)
    monkeypatch.chdir(tmp_path / "elsewhere")
    compiled(X[:2])
    assert len([*(tmp_path / "cache").iterdir()]) == 1 and [*(tmp_path / "elsewhere").iterdir()] == []


def test_a_saved_file_is_readable_as_others_are_and_links_stay(tmp_path: Path) -> None:
    compiled = fineline.compile(read_global, backend="eager")
    compiled(X)
    link, file = tmp_path / "link", tmp_path / "step.captures"
    link.symlink_to(file)
    (tmp_path / "other").write_text("")
    assert fineline.save(compiled, link) == 1 and link.is_symlink()
    assert file.stat().st_mode == (tmp_path / "other").stat().st_mode
    assert len([*tmp_path.iterdir()]) == 3 and torch.equal(fineline.load(link, read_global)(X), read_global(X))
    with pytest.raises(fineline.errors.BadCaptures, match="FL221"):
        fineline.load("a\0b", read_global)
