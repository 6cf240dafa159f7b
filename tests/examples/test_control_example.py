"""examples/control as a new user runs it: run, why and audit, each in a fresh process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent.parent / "examples" / "control"


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "control", ignore=shutil.ignore_patterns("__pycache__")))


def fineline(folder: Path, *args: str) -> str:
    command = [sys.executable, "-m", "fineline", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


def test_run(copied):
    out = fineline(
        copied, "run", "--policy", "policy.toml", "--breaks", "declared", "--explain", "out.txt", "train.py", "--steps", "6"
    ).splitlines()
    eager = {**os.environ, "TORCH_COMPILE_DISABLE": "1"}
    plain = subprocess.run([sys.executable, "train.py", "--steps", "6"], cwd=copied, capture_output=True, text=True, env=eager)
    assert out == plain.stdout.splitlines() and len(out) == 2, plain.stderr
    told = (copied / "out.txt").read_text()
    assert told.startswith("forward: 4 graphs, ") and "4 graph breaks" in told.splitlines()[0]
    for fired in ("1 time: disable(textkit/tokenizer.py)", "2 times: disallow(demo_ops::*)", "1 time: allow(textkit.model.rotate)"):
        assert fired in told


def test_why(copied):
    out = fineline(copied, "why", "--policy", "policy.toml", "textkit.tokenizer.Tokenizer.encode")
    assert "disable(textkit/tokenizer.py)" in out and "policy.toml:4" in out and "strings and dictionaries" in out


def test_the_audit_finds_the_forgotten_mark(copied):
    out = fineline(copied, "audit", "train.py", "--steps", "1", "--backend", "eager")
    assert re.search(r"disable\(textkit\.metrics\.accuracy\).*metrics\.py:10.*could be removed", out), out
