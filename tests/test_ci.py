"""What `.ci/run` does without a browser, in a folder where each other command is a stand-in."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

RUN = Path(__file__).parent.parent / ".ci" / "run"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine without a browser: its commands are in `bin`."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(RUN, tmp_path / ".ci" / "run")
    (tmp_path / "bin").mkdir()
    for name in ("bash", "dirname"):
        (tmp_path / "bin" / name).symlink_to(str(shutil.which(name)))
    command(tmp_path, "make", "exit 0")
    command(tmp_path, "git", "echo 1")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(tmp_path / "bin" / "make")
    return tmp_path


def command(machine: Path, name: str, text: str) -> None:
    path = machine / "bin" / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def run(machine: Path) -> tuple[int, str]:
    done = subprocess.run([str(machine / ".ci" / "run")], env={"PATH": str(machine / "bin")}, capture_output=True, text=True)
    return done.returncode, done.stdout


@pytest.mark.parametrize(("user", "apt"), [(0, "exit 100"), (0, "exit 0"), (0, ""), (1000, "exit 0")], ids=["fails", "has none", "no apt-get", "not root"])
def test_who_has_no_browser_is_told_what_to_install(machine: Path, user: int, apt: str) -> None:
    command(machine, "id", f"echo {user}")
    if apt:
        command(machine, "apt-get", apt)
    status, said = run(machine)
    assert status == 1 and "apt-get install chromium\n" in said and said.endswith("FAILED: chromium\n")


def test_root_gets_a_browser_by_apt_get(machine: Path) -> None:
    command(machine, "id", "echo 0")
    command(machine, "apt-get", f'[ "$1" = update ] || {{ echo "#!/bin/sh" > {machine}/bin/chromium; {shutil.which("chmod")} +x {machine}/bin/chromium; }}')
    status, said = run(machine)
    assert status == 0 and said.endswith("All passed.\n") and re.search(r"^\d+ s  modes, part 1\/24$", said, re.MULTILINE)
