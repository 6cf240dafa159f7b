"""The audit's verdicts, its words, its forms, and its line of progress."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from fineline.cli.audit import Audit, Outcome

CLOCK = """import time, torch

def turns(x):
    for _ in range(8):
        x = x.sin() * 2
        t = time.time()
    return x

turns = torch.compile(turns, backend="eager")
turns(torch.ones(3))
turns(torch.ones(3))
"""
SCRIPTS = {
    "clock": CLOCK,
    "exits": f"{CLOCK}raise SystemExit(3)\n",
    "prints": "import torch\n\n@torch.compiler.disable\ndef f(x):\n    return torch.compiler.is_compiling()\n\n"
    "print(torch.compile(lambda x: (x + 1, f(x)), backend='eager')(torch.ones(2))[1])\n",
}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name, text in SCRIPTS.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "rules.toml").write_text('disable = [\n"time.time",\n"time.monotonic"]\n')
    (tmp_path / "none.toml").write_text("")
    return tmp_path


def audit(project: Path, *words: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fineline", "audit", *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=project, env={**os.environ, "COLUMNS": "250"}, timeout=300)


@pytest.mark.later
@pytest.mark.parametrize(
    "words, status, verdict",
    [
        # The rule is there to declare the breaks.
        (["--breaks", "declared", "--policy", "rules.toml", "clock.py"], 0, "the exit status is 1, not 0: Undeclared: FL106: "),
        (["--breaks", "declared", "--policy", "rules.toml", "exits.py"], 3, "the exit status is 1, not 3: Undeclared: FL106: "),
        # It stops at the first break, with the rule or without it, for another reason.
        (["--breaks", "none", "--policy", "rules.toml", "clock.py"], 1, "the program fails with: Unsupported: FL102: "),
        (["--policy", "none.toml", "prints.py"], 0, "the program prints something else"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)  # fmt: skip
def test_a_rule_is_needed(project: Path, words: list[str], status: int, verdict: str) -> None:
    done = audit(project, *words)
    assert done.returncode == status, done.stderr
    assert "given up" not in done.stdout
    [line] = [line for line in done.stdout.splitlines() if "without it" in line]
    assert f"needed: without it {verdict}" in line
    assert ("code that it did not reach was not judged" in done.stdout) is (status != 0)


@pytest.mark.parametrize(
    "base, other, text",
    [
        ({}, {("eager", "FL404"): 5}, "there are more stretches that run eagerly: 5, not 0 (FL404 too few operators for a graph)"),
        (
            {("eager", "FL404"): 1, ("raised", "FL408"): 1}, {("eager", "FL404"): 2, ("eager", "FL435"): 2, ("raised", "FL408"): 1},
            "there are more stretches that run eagerly: 4, not 1 (FL404 too few operators for a graph, FL435 a graph runs as it was captured)",
        ),
        ({}, {("limit", "FL104"): 1}, "there are more limits that are reached: 1, not 0 (FL104 "),
        ({("skipped", "FL405"): 1}, {("skipped", "FL405"): 2}, "there are more functions that are not traced into: 2, not 1 (FL405 a coroutine"),
        ({("raised", "FL408"): 2}, {("raised", "FL408"): 3}, "there are more captures that raise: 3, not 2 (FL408 the call raised an exception)"),
        # Fewer of one kind make up for more of another.
        ({("eager", "FL404"): 5}, {("eager", "FL435"): 4}, ""),
    ],
)  # fmt: skip
def test_words_for_what_runs_without_a_graph(base: dict, other: dict, text: str) -> None:
    """They say what was counted, with its ids: of events that the capture tells, and not of captures."""
    judged = Audit.__new__(Audit)
    judged.base, judged.repeatable = Outcome(0, b"", b"", 1, 1, Counter(base), ()), True
    needed = judged._needed(Outcome(0, b"", b"", 1, 1, Counter(other), ()))
    assert needed.startswith(text) and bool(needed) == bool(text)


@pytest.mark.later
def test_json_and_check(project: Path) -> None:
    """Both for programs that read it: verdicts on standard output, exit status 1 if a rule could go."""
    done = audit(project, "--json", "--check", "--breaks", "declared", "--policy", "rules.toml", "clock.py")
    facts = json.loads(done.stdout)
    assert done.returncode == 1 and done.stderr == ""
    assert (facts["status"], facts["repeatable"]) == (0, True) and facts["breaks"] > 1
    rules = {rule["selector"]: rule for rule in facts["rules"]}
    assert {name: (rule["needed"], rule["times"], rule["place"]) for name, rule in rules.items()} == {
        "time.time": (True, facts["breaks"], "rules.toml:2"), "time.monotonic": (False, 0, "rules.toml:3"),
    }  # fmt: skip
    assert rules["time.monotonic"]["verdict"] == "never matched"
    (project / "rules.toml").write_text('disable = "time.time"\n')
    assert audit(project, "--check", "--breaks", "declared", "--policy", "rules.toml", "clock.py").returncode == 0


def test_progress_on_a_terminal(project: Path) -> None:
    """On standard error, if that is a terminal; and none of it in the program's output."""
    theirs, ours = pty.openpty()
    command = [sys.executable, "-m", "fineline", "audit", "--json", "--policy", "rules.toml", "clock.py"]
    env = {**os.environ, "COLUMNS": "120", "TERM": "xterm"}
    with subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, stderr=ours, env=env) as done:
        os.close(ours)
        shown = b""
        # A terminal whose last writer is gone gives an error.
        try:
            while text := os.read(theirs, 4096):
                shown += text
        except OSError:
            pass
        assert done.stdout is not None
        facts = json.loads(done.stdout.read())
    os.close(theirs)
    assert facts["status"] == 0
    assert b"as it is" in shown and b"without disable(time.time)" in shown and b"2 of 3 runs" in shown


def test_the_table_in_a_pipe(tmp_path: Path) -> None:
    """Names are whole, and what "could be removed" means is said: a rule that mends numbers could be."""
    (tmp_path / "model.py").write_text("def a_function_with_a_long_name_that_adds(x):\n    return x + 1\n")
    (tmp_path / "train.py").write_text(
        "import torch\nfrom model import *\nstep = torch.compile(lambda x: a_function_with_a_long_name_that_adds(x.sin()), backend='eager')\nstep(torch.ones(3))\n"
    )
    (tmp_path / "rules.toml").write_text('disable = ["model.a_function_with_a_long_name_that_adds"]\n')
    command = [sys.executable, "-m", "fineline", "audit", "--policy", "rules.toml", "train.py"]
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0 and "disable(model.a_function_with_a_long_name_that_adds)" in done.stdout, done.stderr
    assert "exit status 0, 1 graph, 1 graph break; 1 rule or mark, 1 not needed\n" in done.stdout
    assert "Numbers that it does not print are not compared: keep a rule that keeps a wrong result out.\n" in done.stdout
