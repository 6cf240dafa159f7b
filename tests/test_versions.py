"""What runs the tests on other Pythons and PyTorchs: interpreters, environments, records of runs, and README's table, which is made from these."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from fineline import torch_support
from fineline.bytecode import supported
from tests.versions import __main__ as command
from tests.versions import cuda_stubs, environments, interpreters, runs, table


def test_readme_has_the_table_of_the_kept_results() -> None:
    text = table.README.read_text()
    assert table.in_readme(text, table.table(runs.read(table.KEPT))) == text, "make versions-table"


def test_the_versions_are_the_supported_ones() -> None:
    assert [tuple(map(int, release.split("."))) for release in environments.RELEASES] == list(torch_support.TESTED)
    assert all([full.startswith(f"{release}.") for release, full in environments.RELEASES.items()])
    assert f"torch=={next(iter(environments.RELEASES.values()))}\n" in (environments.ROOT / "constraints.txt").read_text()
    assert [supported.unsupported("cpython", (*map(int, version.split(".")), 9), "") for version in environments.PYTHONS] == [None] * len(environments.PYTHONS)
    assert environments.BASE == environments.ALL[0] and {*environments.USUAL} < {*environments.ALL}


# -- interpreters ------------------------------------------------------------------------------------------------------
def fake_python(path: Path, answer: str, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{answer}'\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without interpreters: those in `bin` are on PATH, those in `versions` are pyenv's."""
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "bin"), "/usr/bin", "/bin"]))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(interpreters, "DEBIAN", {})
    return tmp_path


def test_the_first_interpreter_that_does_is_taken(machine: Path) -> None:
    # What pyenv has on PATH is a script that fails where no version is active.
    fake_python(machine / "bin" / "python3.99", "pyenv: python3.99: command not found", 127)
    fake_python(machine / "versions" / "3.99.10" / "bin" / "python", json.dumps(["3.99.10", "it has no Python.h"]))
    fake_python(machine / "versions" / "3.99.9-dev" / "bin" / "python", json.dumps(["3.99.9", None]))
    found = fake_python(machine / "versions" / "3.99.2" / "bin" / "python", json.dumps(["3.99.2", None]))
    assert interpreters.find("3.99") == interpreters.Interpreter(str(found), "3.99.2")


@pytest.mark.parametrize(("answer", "reason"), [
    (json.dumps(["3.99.0", "it does not report stores"]), "it does not report stores"), (json.dumps(["3.98.1", None]), "this is Python 3.98.1, not 3.99"),
    ("no JSON", "Expecting value"),
])  # fmt: skip
def test_why_none_does_is_said(machine: Path, answer: str, reason: str) -> None:
    with pytest.raises(interpreters.Unavailable, match=r"no python3\.99 is on PATH or among pyenv's"):
        interpreters.find("3.99")
    fake_python(machine / "bin" / "python3.99", answer)
    with pytest.raises(interpreters.Unavailable, match=reason):
        interpreters.find("3.99")


def test_fineline_itself_says_which_pythons_do_not() -> None:
    """The probe runs in this Python, with the check that the import of fineline makes."""
    this = ".".join(map(str, sys.version_info[:2]))
    found = interpreters.probed(sys.executable, this)
    assert found.version.startswith(this) and found.enter == ()
    with pytest.raises(interpreters.Unavailable, match="not 3.99"):
        interpreters.probed(found.path, "3.99")


# -- environments ------------------------------------------------------------------------------------------------------
def test_an_environment_that_cannot_be_made_is_a_failure(machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(environments, "FOLDER", machine / "environments")
    monkeypatch.setattr(runs, "RESULTS", machine / "results.json")
    assert command.main(["run", "-e", "3.12-torch-2.13", "-t", "guards"]) == 1
    said = capsys.readouterr().out
    assert "3.12-torch-2.13 could not be made: no python3.12 is on PATH or among pyenv's" in said and "All passed" not in said


def test_environments_of_different_pythons_are_made_at_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    made, both = [], threading.Barrier(2, timeout=60)

    def make(self: environments.Environment) -> None:
        if self.name != "3.12-torch-2.14":
            both.wait()
        made.append(self.name)
        if self.version == "3.11":
            raise interpreters.Unavailable("no such release")

    monkeypatch.setattr(environments.Environment, "make", make)
    assert command.main(["make", "-e", "3.12-torch-2.13", "3.11-torch-2.15", "3.12-torch-2.14"]) == 1
    assert sorted(made) == ["3.11-torch-2.15", "3.12-torch-2.13", "3.12-torch-2.14"] and made.index("3.12-torch-2.13") < made.index("3.12-torch-2.14")
    assert capsys.readouterr().out == "\nFAILED:\n3.11-torch-2.15 could not be made: no such release\n"


def test_steps_are_done_again_with_those_after_them(tmp_path: Path) -> None:
    environment, done = environments.Environment("3.12-torch-2.13"), []
    environment.folder = tmp_path
    for first, second in ("aa", "aa", "ab", "bb", "bb"):
        made = environment._step("first", first, lambda: done.append("first"))
        environment._step("second", made + second, lambda: done.append("second"))
    assert done == ["first", "second", "second", "first", "second"]


def test_a_step_that_fails_is_done_again(tmp_path: Path) -> None:
    environment = environments.Environment("3.12-torch-2.13")
    environment.folder = tmp_path
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            environment._step("first", "a", lambda: 1 // 0)


def test_libraries_bring_neither_each_other_nor_pytorch() -> None:
    """What needs PyTorch would bring another one, and what that needs for GPUs."""
    needs = ["torch>=2.0.0", "torch_geometric", "tqdm>=4.60", "regex!=2019.12.17; python_version >= '3.9'", "ruff; extra == 'dev'", "importlib_metadata"]
    assert environments.further(needs, {"torch", "torch-geometric"}) == [needs[2], needs[3], needs[5]]


def test_stand_ins_of_libraries_answer_that_there_is_no_device(tmp_path: Path) -> None:
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    (tmp_path / "real.c").write_text("int cuVersioned(void) { return 0; }\nconst char *cuGetErrorString(void) { return 0; }\n")
    (tmp_path / "other.c").write_text("int cuOther(void) { return 0; }\n")
    (tmp_path / "real.map").write_text("libreal.so.13 { global: cuVersioned; cuGetErrorString; };\n")
    declared = "int cuVersioned(void); int cuOther(void); const char *cuGetErrorString(void);"
    functions = "int sum(void) { return cuVersioned() + cuOther(); } const char *text(void) { return cuGetErrorString(); }"
    (tmp_path / "user.c").write_text(f"{declared} {functions}\n")
    link = ["gcc", "-shared", "-fPIC", "-nostdlib"]
    subprocess.run([*link, "-Wl,-soname,libreal.so.13", "-Wl,--version-script=real.map", "-o", "libreal.so.13", "real.c"], cwd=tmp_path, check=True)
    subprocess.run([*link, "-Wl,-soname,libother.so", "-o", "libother.so", "other.c"], cwd=tmp_path, check=True)
    subprocess.run([*link, "-Wl,-rpath,$ORIGIN", "-o", str(folder / "libuser.so"), "user.c", "libreal.so.13", "./libother.so"], cwd=tmp_path, check=True)
    assert cuda_stubs.make(tmp_path) == ["libother.so", "libreal.so.13"]
    library = ctypes.CDLL(str(folder / "libuser.so"))
    library.text.restype = ctypes.c_char_p
    assert library.sum() == 200 and library.text() == b"there is no device"
    assert cuda_stubs.make(tmp_path) == []


# -- records -----------------------------------------------------------------------------------------------------------
REPORT = """<testsuites><testsuite>
<testcase classname="tests.guards.test_a" name="test_passes" time="0.1" />
<testcase classname="tests.guards.test_a" name="test_fails[1]" time="0.1"><failure message="assert 1 == 2&#10;where">text</failure></testcase>
<testcase classname="tests.guards.test_a" name="test_fails_twice"><failure message="first" /><error message="at its end" /></testcase>
<testcase classname="tests.guards.test_a" name="test_skipped"><skipped type="pytest.skip" message="no compiler">text</skipped></testcase>
<testcase classname="" name="tests.guards.test_b"><skipped message="collection skipped">('/a/b.py', 13, "Skipped: could not import 'x': No module named 'y'")
</skipped></testcase>
<testcase classname="tests.guards.test_a" name="test_gap"><skipped type="pytest.xfail" message="not yet" /></testcase>
</testsuite></testsuites>"""


def test_a_report_is_counted_by_tests() -> None:
    passed, failed, skipped = runs.read_report(REPORT)
    assert passed == 1 and skipped == Counter({"no compiler": 1, "could not import 'x': No module named 'y'": 1, "known gap: not yet": 1})
    assert failed == {"tests.guards.test_a::test_fails[1]": "assert 1 == 2", "tests.guards.test_a::test_fails_twice": "first"}


def record(date: str, share: str = "0/1", **others: object) -> runs.Record:
    known = {"python": "3.12.1", "torch": "2.13.0+cpu", "commit": "abc", "seconds": 1, "passed": 10, "failed": {}, "skipped": {}}
    return {**known, "date": date, "share": share, **others}  # type: ignore[typeddict-item]


def test_the_later_of_two_records_is_kept() -> None:
    kept = {"3.12-torch-2.13": {"guards": record("2026-01-02"), "policy": record("2026-01-01")}}
    new = {"3.12-torch-2.13": {"guards": record("2026-01-01"), "policy": record("2026-01-02")}, "3.11-torch-2.14": {"guards": record("2026-01-01")}}
    merged = runs.newest(kept, new)
    assert {name: {chosen: found["date"][-1] for chosen, found in sets.items()} for name, sets in merged.items()} == {
        "3.12-torch-2.13": {"guards": "2", "policy": "2"}, "3.11-torch-2.14": {"guards": "1"},
    }  # fmt: skip


def test_cells_say_what_was_run() -> None:
    results = {
        "3.12-torch-2.13": {"guards": record("2026-01-01"), "language": record("2026-01-01", "2/3", failed={"a::b": "text"}, skipped={"no NumPy": 2})},
        "3.11-torch-2.14": {"guards": record("2026-01-01", "0/5", python="3.11.7", torch="2.14.1")},
    }
    made = table.table(results)
    assert "| tests | Python 3.11.7, PyTorch 2.14.1 | Python 3.12.1, PyTorch 2.13.0 |\n| --- | --- | --- |\n| guards | 1/5 10 / 0 / 0 | 10 / 0 / 0 |" in made
    assert "| language | – | ⅓ 10 / **1** / 2 |" in made
    assert "- `a::b` (3.12-torch-2.13)" in made and "- 2: no NumPy" in made
    assert table.in_readme(table.in_readme(f"a\n{table.BEGIN}\nold\n{table.END}\nb\n", "new"), made) == f"a\n{table.BEGIN}\n{made}\n{table.END}\nb\n"


@pytest.mark.parametrize("text", ["everything", "guards:", "guards:1", "guards:0/0", "language:a/3", "../guards"])
def test_other_sets_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        runs.Chosen.parse(text)
    assert runs.Chosen.parse("language:1/3") == ("language", "1/3") and runs.Chosen.parse("guards") == ("guards", "0/1")
