"""``fineline bisect``: what it prints, its exit statuses, the check command, the log, other processes, wrong input."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NET = """\
import torch

def act(x, wrong):
    return torch.nn.functional.gelu(x) if wrong else x.relu()

def step(x):
    for i in range(6):
        x = act(x * 2 - 1, i == 4)
        if i == 2:
            print("half", end="\\r")
    return x
"""
TRAIN = """\
import copy, os, subprocess, sys
import torch
import torch.nn.functional as F
from net import step

def faulty(gm, inputs):
    own = copy.deepcopy(gm)
    for node in own.graph.nodes:
        if node.target is F.gelu:
            if "raise" in sys.argv:
                raise RuntimeError("no lowering for gelu")
            node.kwargs = {"approximate": "tanh"}
    own.recompile()
    return own.forward

if "launch" in sys.argv:
    raise SystemExit(subprocess.run([sys.executable, "train.py", *[word for word in sys.argv[1:] if word != "launch"]]).returncode)
x = torch.linspace(1.0, 1.2, 12)
fast = torch.compile(step, backend="eager" if "--right" in sys.argv else faulty)
fast(x)
with open("out.txt", "w") as file:
    file.write("right" if torch.allclose(fast(x), step(x), atol=1e-6) else "wrong")
if "own" in sys.argv:
    assert open("out.txt").read() == "right"
"""
CHECK = "grep -q right out.txt"
# Says the opposite each time.
FLAKY = "test -e there && rm there || ! touch there"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "none.toml").write_text("")
    return tmp_path


def bisect(folder: Path, *args: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fineline", "bisect", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ}, timeout=600)


@pytest.mark.later
def test_a_program_and_its_check(folder: Path) -> None:
    """It prints the function and the line, and what goes into the policy file; with that, the program is right."""
    done = bisect(folder, "train.py", "--check", CHECK, "--log", "runs.log")
    assert done.returncode == 0, done.stderr
    runs = re.findall(r"^fineline: run (\d+): (.*)$", done.stderr, re.M)
    assert done.stdout == f"""\
train.py is wrong: the check's exit status is 1
  torch.nn.functional.gelu
    in act, {folder}/net.py:4
    graph 1
  mended by
    disallow = ["torch.nn.functional.gelu"]
  {len(runs)} runs

put this into the policy file:

disallow = ["torch.nn.functional.gelu"]
"""
    # The number is told beforehand.
    [told] = re.findall(r"^fineline: at most (\d+) more runs, if one operator is wrong$", done.stderr, re.M)
    assert len(runs) - 3 <= int(told) <= len(runs) + 4 and done.stderr.startswith("fineline: 3 runs to see whether there is a fault; then about 2 log2(n)")
    assert [text for _, text in runs[:3]] == ["no graph compiled: right", *["all graphs compiled: the check's exit status is 1"] * 2]
    log = (folder / "runs.log").read_text()
    assert log.count("the program's exit status is 0") == len(runs) and all(f"== run {n}: {text}\n" in log for n, text in runs) and "half" in log
    (folder / "mending.toml").write_text(done.stdout.rpartition("file:\n\n")[2])
    run = [sys.executable, "-m", "fineline", "run", "--policy"]
    for policy, text in (("none.toml", "wrong"), ("mending.toml", "right")):
        subprocess.run([*run, policy, "train.py"], cwd=folder, check=True, capture_output=True, timeout=300)
        assert (folder / "out.txt").read_text() == text


@pytest.mark.later
def test_the_program_checks_itself(folder: Path) -> None:
    done = bisect(folder, "train.py", "own")
    assert done.returncode == 0 and done.stdout.startswith("train.py is wrong: the program's exit status is 1: AssertionError\n"), done.stderr
    assert f"in act, {folder}/net.py:4" in done.stdout


@pytest.mark.later
@pytest.mark.parametrize("args", [["raise"], ["launch"]], ids=str)
def test_a_backend_that_fails_and_a_process_that_the_program_starts(folder: Path, args: list[str]) -> None:
    done = bisect(folder, "--check", CHECK, "train.py", *args)
    assert done.returncode == 0 and f"in act, {folder}/net.py:4" in done.stdout and 'disallow = ["torch.nn.functional.gelu"]' in done.stdout, done.stderr
    assert ("no lowering for gelu" in done.stdout) == (args == ["raise"])


def test_nothing_to_find(folder: Path) -> None:
    done = bisect(folder, "--check", CHECK, "train.py", "--", "--right")
    assert (done.returncode, done.stdout) == (1, "train.py is right: there is nothing to find\n  3 runs\n")


@pytest.mark.later
def test_a_program_that_runs_no_compiled_graph_tells_nothing(folder: Path) -> None:
    (folder / "once.py").write_text("import torch\nf = torch.compile(lambda x: x.sin() + 1, backend='aot_eager')\nf(torch.ones(3))\n")
    done = bisect(folder, "once.py")
    assert done.returncode == 1 and done.stdout.startswith("once.py is right: there is nothing to find; but no compiled graph has run: the first call")
    with (folder / "once.py").open("a") as file:
        file.write("f(torch.ones(3))\n")
    assert bisect(folder, "once.py").stdout == "once.py is right: there is nothing to find\n  3 runs\n"


@pytest.mark.later
def test_what_is_wrong_in_eager_code_too(folder: Path) -> None:
    """A check that always fails, and a program with an error of its own, are not put on fineline."""
    done = bisect(folder, "--check", "false", "train.py")
    assert (done.returncode, done.stdout) == (1, "train.py is wrong in eager code too: the check's exit status is 1\n  4 runs\n")
    assert "fineline: run 4: nothing captured: the check's exit status is 1\n" in done.stderr


def test_a_check_that_cannot_run(folder: Path) -> None:
    done = bisect(folder, "--check", "no_such_command", "train.py")
    assert done.returncode == 2 and "the check 'no_such_command' can't be run: the shell's exit status is 127" in done.stderr and not done.stdout


def test_rules_name_what_is_beside_the_program(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The names are looked up as in a run: from the folder of the program, wherever the command is called."""
    (folder / "rules.toml").write_text('disable = ["train.no_such_function"]\n')
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    done = bisect(elsewhere, "--policy", str(folder / "rules.toml"), str(folder / "train.py"))
    assert done.returncode == 2 and "there is no train.no_such_function" in done.stderr and "run 1" not in done.stderr, done.stderr


@pytest.mark.later
def test_a_flaky_check(folder: Path) -> None:
    done = bisect(folder, "--check", FLAKY, "train.py")
    assert done.returncode == 1
    assert done.stdout.startswith(f"the check is flaky: after one run of the program {FLAKY!r} ends with exit status 1, and then with 0\n")


@pytest.mark.later
@pytest.mark.parametrize(
    "args, text",
    [
        (["absent.py"], "can't open file 'absent.py'"),
        (["train.py", "--right"], "No such option"),
        (["--log", "nowhere/runs.log", "train.py"], "there is no folder"),
        (["--policy", "wrong.toml", "train.py"], "wrong.toml"),
        ([], "Missing argument 'PROGRAM'"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)  # fmt: skip
def test_wrong_input(folder: Path, args: list[str], text: str) -> None:
    (folder / "wrong.toml").write_text("disabel = 3\n")
    done = bisect(folder, *args)
    assert done.returncode == 2 and text in done.stderr and "run 1" not in done.stderr, (done.stdout, done.stderr)
