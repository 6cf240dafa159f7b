"""The cache: with FINELINE_CACHE_DIR, programs are kept in a folder and found by the next process; without it nothing is written."""

from __future__ import annotations

import textwrap

import pytest

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
