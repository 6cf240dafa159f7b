"""examples/control as a new user runs it: each command of its README, in a fresh process."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import tutorials
from tests.report.pages import page_data

CHECK = 'grep -q "loss 4.139" loss.txt'
FOLDER = Path(__file__).parent.parent.parent / "examples" / "control"


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(FOLDER, tmp_path / "control", ignore=shutil.ignore_patterns("__pycache__")))


def run(folder: Path, *args: str, **variables: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, *args], cwd=folder, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200", **variables})


def fineline(folder: Path, *args: str, told: str = "", **variables: str) -> str:
    """Returns what a command prints. ``told``: what it prints on standard error."""
    done = run(folder, "-m", "fineline", *args, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == told, done.stderr
    return done.stdout


def eager(folder: Path, steps: int) -> list[str]:
    """Returns what the script prints without a compiler: the losses, and what the hooks have seen."""
    plain = run(folder, "train.py", "--steps", str(steps), TORCH_COMPILE_DISABLE="1")
    assert plain.returncode == 0, plain.stderr
    return plain.stdout.splitlines()


def test_run(copied):
    out = fineline(
        copied, "run", "--policy", "policy.toml", "--breaks", "declared", "--explain", "out.txt", "train.py", "--steps", "6"
    ).splitlines()
    assert out == eager(copied, 6) and len(out) == 3
    told = (copied / "out.txt").read_text()
    assert told.startswith("forward: 4 graphs, ") and "4 graph breaks" in told.splitlines()[0]
    for fired in ("1 time: disable(textkit/tokenizer.py)", "2 times: disallow(demo_ops::*)", "1 time: allow(textkit.model.rotate)"):
        assert fired in told


def test_why(copied):
    out = fineline(copied, "why", "--policy", "policy.toml", "textkit.tokenizer.Tokenizer.encode")
    assert "disable(textkit/tokenizer.py)" in out and "policy.toml:4" in out and "strings and dictionaries" in out


def test_the_audit_finds_the_forgotten_mark(copied):
    out = fineline(copied, "audit", "train.py", "--steps", "1", "--backend", "eager")
    assert re.search(r"disable\(textkit\.metrics\.accuracy\).*metrics\.py:11.*could be removed", out), out


@pytest.mark.later
def test_the_page_and_the_ledger(copied):
    """Another backend changes no break; without the rules, the breaks are others."""
    ran = ("run", "--policy", "policy.toml", "--ledger", "breaks.toml")
    fineline(copied, *ran, "--update", "--report", "report.html", "train.py", "--steps", "2", told="fineline: breaks.toml: 4 entries met; 4 new")
    page = page_data((copied / "report.html").read_text())
    assert [function["name"] for function in page["functions"]] == ["forward"]
    fineline(copied, *ran, "train.py", "--steps", "2", "--backend", "eager", told="fineline: breaks.toml: as listed, 4 of 4 entries")
    without = run(copied, "-m", "fineline", "run", "--ledger", "breaks.toml", "train.py", "--steps", "2", "--backend", "eager")
    assert without.returncode == 1 and "new:   recompile FL407" in without.stderr and "gone:  graph break FL429" in without.stderr, without.stderr


@pytest.mark.later
def test_annotations_and_sarif(copied):
    """A new graph break is at its line, in the formats of GitHub and of SARIF."""
    ran = ("run", "--policy", "policy.toml", "--ledger", "breaks.toml")
    rest = ("train.py", "--steps", "2", "--backend", "eager")
    fineline(copied, *ran, "--update", *rest, told="fineline: breaks.toml: 4 entries met; 4 new")
    text = (copied / "train.py").read_text().replace("    return loss, right", "    print(loss.item())\n    return loss, right")
    (copied / "train.py").write_text(text)
    line = text.splitlines().index("    print(loss.item())") + 1
    github = run(copied, "-m", "fineline", *ran, "--ledger-format", "github", *rest)
    assert github.returncode == 1, github.stderr
    found = re.findall(r"^::error file=train\.py,line=(\d+),title=graph break (FL\d+)", github.stdout, re.M)
    assert found == [(str(line), "FL411"), (str(line), "FL502")], github.stdout
    sarif = run(copied, "-m", "fineline", *ran, "--ledger-format", "sarif", "--ledger-output", "breaks.sarif", *rest)
    assert sarif.returncode == 1, sarif.stderr
    [told] = json.loads((copied / "breaks.sarif").read_text())["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in told["results"]]
    assert [result["ruleId"] for result in told["results"]] == ["FL411", "FL502"]
    assert {(place["artifactLocation"]["uri"], place["region"]["startLine"]) for place in places} == {("train.py", line)}


@pytest.mark.later
def test_the_fixture_of_the_pytest_plugin(copied):
    """The list that is checked in holds, and a graph break that is not in it fails."""
    command = ("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:fineline", "-p", "fineline.pytest_plugin", "test_textkit.py")
    done = run(copied, *command)
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout
    ledger = copied / "test_textkit.test_forward.ledger.toml"
    text = ledger.read_text()
    assert run(copied, *command, "--fineline-ledger-update").returncode == 0 and ledger.read_text() == text
    model = copied / "textkit" / "model.py"
    model.write_text(model.read_text().replace("        x = rotate(x, 100.0)", "        x.tolist()\n        x = rotate(x, 100.0)"))
    done = run(copied, *command)
    assert done.returncode == 1 and "FL502 in textkit.model.Model.forward: tolist reads a tensor's values" in done.stdout, done.stdout


def test_a_process_loads_the_captures_of_another(copied):
    saved = run(copied, "serve.py", "--save", "model.captures")
    assert saved.returncode == 0, saved.stderr
    words, _, captured = saved.stdout.splitlines()[0].partition(", captured ")
    assert int(captured.split()[0]) > 0 and re.search(r"^saved [1-9]\d* programs$", saved.stdout, re.M)
    loaded = run(copied, "serve.py", "--load", "model.captures")
    assert loaded.returncode == 0 and loaded.stdout == f"{words}, captured 0 graphs\n", loaded.stdout + loaded.stderr


@pytest.mark.later
@pytest.mark.parametrize("options", ['{"wait": false}', '{"shadow": 1.0}'])
def test_options_of_torch_compile(copied, options):
    out = fineline(copied, "run", "--policy", "policy.toml", "train.py", "--steps", "6", "--options", options)
    assert out.splitlines() == eager(copied, 6)


@pytest.mark.later
def test_a_second_run_captures_nothing(copied):
    ran = ("run", "train.py", "--steps", "6", "--backend", "eager")
    assert fineline(copied, *ran, FINELINE_CACHE_DIR="captures").splitlines() == eager(copied, 6)
    [saved] = (copied / "captures").iterdir()
    written = saved.stat().st_mtime_ns
    assert fineline(copied, *ran, FINELINE_CACHE_DIR="captures").splitlines() == eager(copied, 6)
    # A call that captures something writes the file anew.
    assert saved.stat().st_mtime_ns == written


@pytest.mark.later
def test_the_culprit(copied):
    """The rules name what only the program's folder has. The rule that is found mends the program, beside them."""
    found = run(copied, "-m", "fineline", "bisect", "--policy", "policy.toml", "wrong.py")
    assert found.returncode == 0 and "Model.forward" in found.stdout and "model.py:29" in found.stdout, found.stdout + found.stderr
    rule = 'disallow = ["torch.Tensor.cumsum"]'
    assert found.stdout.endswith(f"put this into the policy file:\n\n{rule}\n")
    (copied / "mended.toml").write_text(rule)
    assert run(copied, "-m", "fineline", "run", "wrong.py").returncode == 1
    assert run(copied, "-m", "fineline", "run", "--policy", "mended.toml", "wrong.py").returncode == 0


@pytest.mark.later
def test_the_culprit_by_a_check_of_what_it_writes(copied):
    found = run(copied, "-m", "fineline", "bisect", "--policy", "policy.toml", "--check", CHECK, "wrong.py", "loss.txt")
    assert found.returncode == 0 and "the check's exit status is 1" in found.stdout, found.stdout + found.stderr
    assert found.stdout.endswith('put this into the policy file:\n\ndisallow = ["torch.Tensor.cumsum"]\n'), found.stdout
    assert f"--check '{CHECK}' wrong.py loss.txt" in (FOLDER / "README.md").read_text()


@pytest.mark.later
def test_the_commands_of_the_page_succeed_as_they_stand(copied):
    """In their order: some read what others have written. Those that take long have tests above: many runs, and other options."""
    page = tutorials.read((FOLDER / "README.md").read_text())
    short = [command for command in page.commands if not re.search(r"^fineline (audit|bisect)|--options", command.line)]
    assert (len(page.commands), len(short)) == (16, 11)
    ran = tutorials.run(page._replace(commands=short), copied)
    assert [(command.line, output) for command, status, output in ran if status] == []
