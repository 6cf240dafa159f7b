"""The pytest plugin, in pytest processes of projects in a folder: the fixture, whole sessions, parts of them, pytest-xdist, and its cost."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fineline

ROOT = Path(__file__).parent.parent.parent
TESTS = """
import pytest
import torch
import fineline as fl

def noisy(x):
    print("loading")
    return x + 1

def quiet(x):
    return x.sin() + 1

@pytest.mark.parametrize("fn", [noisy, quiet], ids=["a/b", "quiet"])
def test_step(fn):
    fl.compile(fn, backend="eager")(torch.ones(3))
"""
FIXTURE = """
import torch
import fineline as fl

class TestNet:
    def test_net(self, fineline):
        step = fl.compile(lambda x: x + 1, backend="eager")
        for n in (3, 4):
            step(torch.ones(n))
        fineline.assert_ledger(step)
        fineline.assert_ledger(lambda x: x * x.sum().item(), torch.ones(3))
"""


def project(folder: Path, **files: str) -> Path:
    (folder / "tests").mkdir()
    for name, text in files.items():
        (folder / "tests" / f"{name}.py").write_text(text)
    return folder


def pytest_in(folder: Path, *args: str, python: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    # Named here, because an environment may have an installation without the entry point.
    command = [sys.executable, *python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:fineline", "-p", "fineline.pytest_plugin", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


def test_the_entry_point() -> None:
    [(name, module)] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["pytest11"].items()
    assert name == "fineline" and importlib.util.find_spec(module) is not None


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """Variables of a process that finds the entry point. Where fineline is only on the path, metadata as pip writes them declare it."""
    if any(point.value == "fineline.pytest_plugin" for point in importlib.metadata.entry_points(group="pytest11")):
        return {**os.environ}
    metadata = tmp_path / "metadata" / f"fineline-{fineline.__version__}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: fineline\nVersion: {fineline.__version__}\n")
    (metadata / "entry_points.txt").write_text("[pytest11]\nfineline = fineline.pytest_plugin\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(metadata.parent), str(ROOT / "src")])}


def test_pytest_loads_it_by_its_entry_point(tmp_path: Path, installed: dict[str, str]) -> None:
    """Nothing but the metadata of the installation names it."""
    (tmp_path / "project").mkdir()
    folder = project(tmp_path / "project", test_net=FIXTURE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "--fineline-ledger-update"], cwd=folder, env=installed, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    assert re.search(rf"^plugins: .*\bfineline-{fineline.__version__}\b", done.stdout, re.M)
    assert len([*(folder / "tests").glob("test_net.TestNet.test_net.*toml")]) == 2
    command += ["-p", "no:fineline", "--fineline-ledger-update"]
    done = subprocess.run(command, cwd=folder, env=installed, capture_output=True, text=True, timeout=600)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "unrecognized arguments: --fineline-ledger-update" in done.stderr


def test_it_costs_nothing_where_it_is_not_used(tmp_path: Path) -> None:
    project(tmp_path, test_plain="""
import sys

def test_plain():
    assert "torch" not in sys.modules and not [name for name in sys.modules if name.startswith(("fineline.ledger", "tomlkit", "click", "fineline.refusals"))]
""")  # fmt: skip
    done = pytest_in(tmp_path)
    assert done.returncode == 0 and "ledger" not in done.stdout, done.stdout
    # Nor do sessions that compile nothing load PyTorch.
    (tmp_path / "breaks.toml").write_text("version = 1\n")
    (tmp_path / "tests" / "test_plain.py").write_text("import sys\n\ndef test_plain():\n    assert 'torch' not in sys.modules\n")
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml")
    assert done.returncode == 0 and "breaks.toml: as listed, 0 of 0 entries" in done.stdout, done.stdout


def test_wrong_arguments(tmp_path: Path) -> None:
    project(tmp_path, test_step=TESTS)
    done = pytest_in(tmp_path, "--fineline-ledger", "none.toml")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "FL219: there is no ledger" in done.stderr and "--fineline-ledger-update" in done.stderr
    (tmp_path / "breaks.toml").write_text("version = 1\nbraek = 1\n")
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "there is no key 'braek'" in done.stderr and "breaks.toml:2" in done.stderr
    done = pytest_in(tmp_path, "--fineline-ledger-output", "out")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "needs --fineline-ledger" in done.stderr
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-output", "no/where.txt")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR and "there is no folder" in done.stderr


@pytest.mark.later
def test_a_session(tmp_path: Path) -> None:
    project(tmp_path, test_step=TESTS)
    ledger = tmp_path / "breaks.toml"
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-update")
    assert done.returncode == 0 and "breaks.toml: 1 entry met; 1 new" in done.stdout
    text = ledger.read_text()
    assert 'function = "tests/test_step.py:noisy"' in text
    # Another thing is new, and an entry is gone.
    (tmp_path / "tests" / "test_step.py").write_text(TESTS.replace("x.sin()", "x.sum().item()").replace('print("loading")', ""))
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-format", "sarif", "--fineline-ledger-output", "out.sarif")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and "2 passed" in done.stdout
    assert "breaks.toml: 1 new, 1 gone" in done.stdout and "FL502 in tests/test_step.py:quiet" in done.stdout and "tests/test_step.py:11" in done.stdout
    assert json.loads((tmp_path / "out.sarif").read_text())["runs"][0]["results"][0]["ruleId"] == "FL502"
    # A part of the tests tells nothing about the others.
    for args in (["-k", "quiet"], ["tests/test_step.py"], ["tests/test_step.py::test_step[quiet]"]):
        done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", *args)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED and "breaks.toml: 1 new\n" in done.stdout
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-update", "-k", "quiet")
    assert done.returncode == 0 and "entries that were not met stay" in done.stdout
    assert text.strip() in ledger.read_text() and "FL502" in ledger.read_text()


@pytest.mark.later
def test_failed_tests_keep_the_status_and_the_entries(tmp_path: Path) -> None:
    project(tmp_path, test_step=f"{TESTS}\n\ndef test_fails():\n    assert False\n")
    (tmp_path / "breaks.toml").write_text('version = 1\n\n[[break]]\nfunction = "f"\nid = "FL411"\nreason = "r"\n')
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-update")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and "1 new" in done.stdout
    assert 'function = "f"' in (tmp_path / "breaks.toml").read_text() and "noisy" in (tmp_path / "breaks.toml").read_text()


@pytest.mark.later
def test_workers_send_what_they_found(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    project(tmp_path, test_step=TESTS, test_other=TESTS.replace("noisy", "loud"))
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "--fineline-ledger-update", "-n", "2")
    assert done.returncode == 0 and "breaks.toml: 2 entries met; 2 new" in done.stdout, done.stdout
    # As without workers; and a new one fails.
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml")
    assert done.returncode == 0 and "as listed, 2 of 2 entries" in done.stdout
    (tmp_path / "tests" / "test_other.py").write_text(TESTS.replace("x.sin()", "x.sum().item()"))
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "-n", "2")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and "2 new, 1 gone" in done.stdout, done.stdout
    done = pytest_in(tmp_path, "--fineline-ledger", "breaks.toml", "-n", "2", "-k", "quiet")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED and "1 new\n" in done.stdout, done.stdout


@pytest.mark.later
def test_the_fixture(tmp_path: Path) -> None:
    project(tmp_path, test_net=FIXTURE)
    done = pytest_in(tmp_path)
    assert done.returncode == 1 and "FL219: there is no ledger" in done.stdout and "--fineline-ledger-update" in done.stdout, done.stdout
    done = pytest_in(tmp_path, "--fineline-ledger-update")
    names = sorted(path.name for path in (tmp_path / "tests").glob("*.toml"))
    assert done.returncode == 0 and names == ["test_net.TestNet.test_net.2.ledger.toml", "test_net.TestNet.test_net.ledger.toml"]
    assert "[[recompile]]" in (tmp_path / "tests" / names[1]).read_text() and "FL502" in (tmp_path / "tests" / names[0]).read_text()
    assert pytest_in(tmp_path).returncode == 0
    (tmp_path / "tests" / names[0]).write_text("version = 1\n")
    done = pytest_in(tmp_path)
    # The traceback ends at the user's line.
    assert done.returncode == 1 and "FL220: not in the ledger" in done.stdout and "tests/test_net.py:11: LedgerDiffers" in done.stdout, done.stdout


@pytest.mark.later
def test_under_fineline_run(tmp_path: Path) -> None:
    project(tmp_path, test_step=TESTS.replace("fl.compile", "torch.compile"))
    command = [sys.executable, "-m", "fineline", "run", "--ledger", "breaks.toml", "--update", "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and 'function = "tests/test_step.py:noisy"' in (tmp_path / "breaks.toml").read_text(), done.stdout + done.stderr
