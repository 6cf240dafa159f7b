"""``fineline run --ledger``: exit statuses, updates, other processes, formats, and what changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from fineline.cli.commands import cli

NET = """\
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0

    def forward(self, x):
        y = x.sin() * self.scale
        return y * y.sum().item()
"""
TRAIN = """\
import os, subprocess, sys
import torch
from mypkg.net import Net

@torch.compile(backend="eager")
def step(x, net):
    return net(x) + 1

step(torch.ones(3), Net())
step(torch.ones(4), Net())
print("done", flush=True)
if "child" in sys.argv:
    subprocess.run([sys.executable, "child.py"], check=True)
if "fork" in sys.argv and os.fork() == 0:
    sys.exit()
if "chdir" in sys.argv:
    os.chdir("/")
if "exit" in sys.argv:
    sys.exit(3)
if "raise" in sys.argv:
    raise KeyError("ours")
"""
CHILD = """\
import torch

@torch.compile(backend="eager")
def in_child(x):
    print("hello from the child")
    return x + 1

in_child(torch.ones(2))
"""
# Other lines, and other code in another function.
EDITED = NET.replace("import torch\n", "import os\nimport torch\n\n\ndef unrelated(x):\n    return x.tolist()\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mypkg").mkdir()
    for name, text in {"mypkg/__init__.py": "", "mypkg/net.py": NET, "train.py": TRAIN, "child.py": CHILD}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def run(folder: Path, *args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fineline", "run", *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=600)


def test_a_list_is_written_and_held(folder: Path) -> None:
    done = run(folder, "--ledger", "ci/breaks.toml", "--update", "train.py", "chdir")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "fineline: ci/breaks.toml: 2 entries met; 2 new\n")
    text = (folder / "ci" / "breaks.toml").read_text()
    assert text.endswith("""
version = 1

[[break]]
function = "mypkg.net.Net.forward"
id = "FL502"
reason = "item reads a tensor's values"

[[recompile]]
function = "../train.py:step"
id = "FL407"
reason = "x: sizes changed"
""")
    done = run(folder, "--ledger", "ci/breaks.toml", "train.py")
    assert (done.returncode, done.stderr) == (0, "fineline: ci/breaks.toml: as listed, 2 of 2 entries\n")
    # Lines have moved, and a function that is not called has come.
    (folder / "mypkg" / "net.py").write_text(EDITED)
    done = run(folder, "--ledger", "ci/breaks.toml", "--update", "train.py")
    assert done.returncode == 0 and "nothing has changed" in done.stderr and (folder / "ci" / "breaks.toml").read_text() == text


@pytest.mark.later
def test_what_is_new_and_gone(folder: Path) -> None:
    ledger = folder / "breaks.toml"
    assert run(folder, "--ledger", "breaks.toml", "--update", "train.py").returncode == 0
    ledger.write_text(ledger.read_text().replace('id = "FL502"', 'id = "FL502"\nnote = "the loss needs it"   # as we know'))
    (folder / "mypkg" / "net.py").write_text(EDITED.replace("y = x.sin()", 'print("new")\n        y = x.sin()'))
    (folder / "train.py").write_text(TRAIN.replace("step(torch.ones(4), Net())", ""))
    done = run(folder, "--ledger", "breaks.toml", "train.py")
    line = 1 + EDITED[: EDITED.index("y = x.sin()")].count("\n")
    assert done.returncode == 1 and done.stderr == f"""\
fineline: breaks.toml: 1 new, 1 gone
  new:   graph break FL411 in mypkg.net.Net.forward: print can't be captured
    at   mypkg/net.py:{line}
    from train.py:7 in step
         mypkg/net.py:{line} in Net.forward
    next Move the call out of the region, or after its last operator.
  gone:  recompile FL407 in train.py:step: x: sizes changed
  Accept what is new, and remove what is gone: run it again with --update
"""
    github = run(folder, "--ledger", "breaks.toml", "--ledger-format", "github", "train.py")
    assert github.returncode == 1 and github.stderr == done.stderr
    assert f"::error file=mypkg/net.py,line={line},title=graph break FL411%3A a function with an effect::" in github.stdout
    sarif = run(folder, "--ledger", "breaks.toml", "--ledger-format", "sarif", "--ledger-output", "out.sarif", "train.py", "chdir")
    assert sarif.returncode == 1 and sarif.stdout == "new\ndone\n"
    [result] = json.loads((folder / "out.sarif").read_text())["runs"][0]["results"]
    assert result["ruleId"] == "FL411" and result["locations"][0]["physicalLocation"]["region"]["startLine"] == line
    done = run(folder, "--ledger", "breaks.toml", "--update", "train.py")
    assert done.returncode == 0 and done.stderr == "fineline: breaks.toml: 2 entries met; 1 new, 1 gone\n"
    assert 'note = "the loss needs it"   # as we know' in ledger.read_text() and "FL407" not in ledger.read_text()


EAGER = """\
import torch

@torch.compile(backend="eager", options={"min_graph_operators": 4})
def reads(x):
    return x * x.sum().item()

@torch.compile(backend="eager")
def batches(x):
    yield x + 1

@torch.compile(backend="eager")
def halves(x):
    def steps(x):
        while True:
            x = x / 2
            yield x

    found = steps(x)
    return next(found), found

def main():
    x = torch.ones(3)
    reads(x)
    reads(x)
    list(batches(x))
    halves(x)

main()
"""
LIMIT = """\
@torch.compile(backend="eager")
def text(x, words):
    return x + len(words.upper())

for n in range(1, 12):
    text(torch.ones(3), "a" * n)
"""


def test_eager_stretches(folder: Path) -> None:
    """Too few operators for a graph, a generator function, a value that cannot be reconstructed; and a limit, which is new."""
    script, ledger = folder / "eager.py", folder / "breaks.toml"
    script.write_text(EAGER)
    done = run(folder, "--ledger", "breaks.toml", "--update", "eager.py")
    assert (done.returncode, done.stderr) == (0, "fineline: breaks.toml: 4 entries met; 4 new\n")
    text = ledger.read_text()
    entries = [(entry["function"], entry["id"]) for entry in tomllib.loads(text)["eager"]]
    assert entries == [("eager.py:batches", "FL405"), ("eager.py:halves", "FL409"), ("eager.py:reads", "FL404")]
    assert [entry["id"] for entry in tomllib.loads(text)["break"]] == ["FL502"]
    done = run(folder, "--ledger", "breaks.toml", "eager.py")
    assert (done.returncode, done.stderr) == (0, "fineline: breaks.toml: as listed, 4 of 4 entries\n")
    # The generator function is compiled no more, and a limit has come.
    script.write_text(EAGER.replace('@torch.compile(backend="eager")\ndef batches', "\n\ndef batches") + LIMIT)
    done = run(folder, "--ledger", "breaks.toml", "eager.py")
    line = script.read_text().splitlines().index("def text(x, words):")
    assert done.returncode == 1 and "fineline: breaks.toml: 2 new, 1 gone\n" in done.stderr, done.stderr
    told = done.stderr[done.stderr.index("  new: ") :]
    assert "  new:   eager stretch FL104 in eager.py:text: 8 programs, with a recompile_limit of 8" in told and f"    at   eager.py:{line}\n" in told
    assert "    next Keep the values that those guards name constant" in told and "  new:   recompile FL407 in eager.py:text: words" in told
    assert "  gone:  eager stretch FL405 in eager.py:batches: batches is a generator function\n" in told
    assert ledger.read_text() == text
    github = run(folder, "--ledger", "breaks.toml", "--ledger-format", "github", "eager.py")
    assert github.returncode == 1 and f"::error file=eager.py,line={line},title=eager stretch FL104%3A " in github.stdout
    done = run(folder, "--ledger", "breaks.toml", "--update", "eager.py")
    assert done.returncode == 0 and done.stderr.endswith("fineline: breaks.toml: 5 entries met; 2 new, 1 gone\n"), done.stderr
    entries = [(entry["function"], entry["id"]) for entry in tomllib.loads(ledger.read_text())["eager"]]
    assert entries == [("eager.py:halves", "FL409"), ("eager.py:reads", "FL404"), ("eager.py:text", "FL104")]
    assert run(folder, "--ledger", "breaks.toml", "eager.py").returncode == 0


@pytest.mark.later
def test_the_programs_status_wins(folder: Path) -> None:
    (folder / "breaks.toml").write_text("version = 1\n")
    for args, status in ((["exit"], 3), (["raise"], 1), ([], 1)):
        done = run(folder, "--ledger", "breaks.toml", "train.py", *args)
        assert done.returncode == status and "breaks.toml: 2 new" in done.stderr and ("KeyError: 'ours'" in done.stderr) == ("raise" in args)
    done = run(folder, "--ledger", "breaks.toml", "--update", "train.py", "exit")
    assert done.returncode == 3 and "not written, because the program failed" in done.stderr
    assert (folder / "breaks.toml").read_text() == "version = 1\n"


@pytest.mark.later
def test_other_processes_are_heard(folder: Path) -> None:
    report = folder / "report.json"
    done = run(folder, "--ledger", "breaks.toml", "--update", "--explain", "report.json", "train.py", "child", "fork")
    assert done.returncode == 0 and done.stderr.count("breaks.toml") == 1, done.stderr
    assert 'function = "child.py:in_child"' in (folder / "breaks.toml").read_text()
    facts = json.loads(report.read_text())
    assert [f["name"] for process in facts["processes"] for f in process["functions"]] == ["in_child"]
    done = run(folder, "--ledger", "breaks.toml", "train.py", "child")
    assert (done.returncode, done.stderr) == (0, "fineline: breaks.toml: as listed, 3 of 3 entries\n")
    done = run(folder, "--ledger", "breaks.toml", "train.py")
    assert done.returncode == 0 and "gone:  graph break FL411 in child.py:in_child" in done.stderr


@pytest.mark.later
def test_one_rank_writes(folder: Path) -> None:
    for rank in ("1", "0"):
        done = run(folder, "--ledger", "breaks.toml", "--update", "train.py", env={"RANK": rank, "LOCAL_RANK": rank})
        assert done.returncode == 0 and (folder / "breaks.toml").exists() == (rank == "0")
    done = run(folder, "--ledger", "breaks.toml", "--ledger-output", "out.txt", "train.py", env={"RANK": "1", "LOCAL_RANK": "1"})
    assert done.returncode == 0 and "as listed" in (folder / "out.rank1.txt").read_text()


# The arguments before the program, what the message says, and the ledger's text.
REFUSED = {
    "no ledger": (["--ledger", "none.toml"], "FL219: there is no ledger: there is no file", "fineline run --ledger none.toml --update", ""),
    "a wrong key": (["--ledger", "breaks.toml"], "there is no key 'breaks'", "breaks.toml:2", "version = 1\n[[breaks]]\nfunction = 'f'\n"),
    "a wrong key in an update": (["--ledger", "breaks.toml", "--update"], "there is no key 'x' in an entry", ":3", "version = 1\n[[break]]\nx = 1\n"),
    "no TOML": (["--ledger", "breaks.toml"], "FL218: this ledger is wrong: this is not TOML", "breaks.toml:2", "version = 1\n[[\n"),
    "an update of nothing": (["--update"], "--update, --ledger-format and --ledger-output need --ledger", "", ""),
    "an output of nothing": (["--ledger-output", "x"], "need --ledger", "", ""),
    "no folder": (["--ledger", "breaks.toml", "--ledger-output", "no/where.txt"], "there is no folder", "--ledger-output", "version = 1\n"),
    "no format": (["--ledger", "breaks.toml", "--ledger-format", "xml"], "'xml' is not one of", "", "version = 1\n"),
}


@pytest.mark.parametrize(("args", "reason", "more", "text"), REFUSED.values(), ids=REFUSED)
def test_refusals(folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], reason: str, more: str, text: str) -> None:
    monkeypatch.chdir(folder)
    if text:
        (folder / "breaks.toml").write_text(text)
    jobs: list = []
    done = CliRunner().invoke(cli, ["run", *args, "train.py"], obj=jobs)
    assert done.exit_code == 2 and reason in done.output and more in done.output, done.output
    assert "Traceback" not in done.output and not jobs


def test_a_refusal_comes_before_the_program(folder: Path) -> None:
    done = run(folder, "--ledger", "none.toml", "train.py")
    assert done.returncode == 2 and done.stdout == "" and done.stderr.startswith("FL219: ")
