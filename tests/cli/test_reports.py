"""``fineline run --explain OUT``: JSON, HTML or text, to files and streams, with the calls and the numbers of operators."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.report.pages import guards_of, page_data

SCRIPT = """
import os, subprocess, sys
import torch

def inner(x):
    return x * x.sum().item()

@torch.compile(backend="eager")
def step(x):
    return inner(x.sin()) + 1

step(torch.ones(3))
step(torch.ones(3))
print("done", flush=True)
if sys.argv[1:]:
    os.chdir("/")
    subprocess.run([sys.executable, __file__], check=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path


def explain(folder: Path, out: str, *args: str, shell: str = "", **variables: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "fineline", "run", "--explain", out, "script.py", *args]
    if shell:
        return subprocess.run(f"{' '.join(command)} {shell}", shell=True, cwd=folder, capture_output=True, text=True)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **variables})


def test_json_has_the_calls_the_operators_and_the_way_to_each_break(folder: Path) -> None:
    done = explain(folder, "out.json", "again")
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\ndone\n", "")
    facts = json.loads((folder / "out.json").read_text())
    for process in (facts, *facts["processes"]):
        [function] = process["functions"]
        # In the first call and in the second one.
        assert function["ran"] == {"captured": 8, "eager": 2, "skipped": 0} and function["counted"] is True
        tree = function["tree"]
        assert [(n["parent"], n["name"], n["colour"]) for n in tree] == [(-1, "step", "captured"), (0, "inner", "captured"), (1, "Tensor.item", "eager")]
        assert tree[0]["operators"] == 2
        [found] = [event for event in function["events"] if event["kind"] == "break"]
        assert found["function"] == "inner" and found["next"] and found["built_in"] and found["rule"].startswith("disallow(torch.Tensor.item)")
        assert [(place["function"], Path(place["file"]).name) for place in found["stack"]] == [("step", "script.py"), ("inner", "script.py")]
    assert len(facts["processes"]) == 1


def test_a_page_covers_all_processes(folder: Path) -> None:
    command = [sys.executable, "-m", "fineline", "run", "--report", "out.html", "script.py", "again"]
    assert subprocess.run(command, cwd=folder, capture_output=True, text=True).returncode == 0
    text = (folder / "out.html").read_text()
    functions = page_data(text)["functions"]
    assert [function["name"] for function in functions] == ["step", "step"]
    assert functions[0]["process"] == "" and functions[1]["process"].startswith("process ")
    for function in functions:
        assert function["recorded"] and sum(function["tree"]["time"]) > 0 and function["tree"]["name"] == ["step", "inner", "Tensor.item"]
        assert [(found["id"], found["times"], found["time"] > 0) for found in function["breaks"]] == [("FL502", 1, True)]
        assert [guard for program in function["programs"] for guard in guards_of(program) if guard[3] > 0]
        assert len([program for program in function["programs"] if "def forward" in program["code"]]) == 2


def test_another_processs_recompiles_have_their_changes(tmp_path: Path) -> None:
    step = "import torch\nstep = torch.compile(lambda x, way: x * len(way), backend='eager')\nstep(torch.ones(3), 'a -> b')\nstep(torch.ones(3), 'c')\n"
    (tmp_path / "step.py").write_text(step)
    (tmp_path / "script.py").write_text("import subprocess, sys; subprocess.run([sys.executable, 'step.py'], check=True)")
    for out in ("out.html", "out.json"):
        assert explain(tmp_path, out).returncode == 0
    [function] = page_data((tmp_path / "out.html").read_text())["functions"]
    assert [(found["value"], found["changes"]) for found in function["recompiles"]] == [("way", [["", "'a -> b'", "'c'"]])]
    [process] = json.loads((tmp_path / "out.json").read_text())["processes"]
    [event] = [event for event in process["functions"][0]["events"] if event["kind"] == "recompile"]
    assert event["reason"] == "way: 'a -> b' -> 'c'"
    assert event["miss"] == {"value": "way", "changes": [{"aspect": "", "before": "'a -> b'", "now": "'c'"}], "file": "", "line": 0}


def test_the_cache_of_programs_is_not_used(folder: Path) -> None:
    assert explain(folder, "out.json", FINELINE_CACHE_DIR=str(folder / "cache")).returncode == 0
    assert sorted(file.name for file in folder.iterdir()) == ["out.json", "script.py"]


@pytest.mark.later
def test_the_name_decides(folder: Path) -> None:
    assert explain(folder, "out.htm").returncode == 0 and (folder / "out.htm").read_text().startswith("<!DOCTYPE html>")
    assert explain(folder, "out.anything").returncode == 0
    assert (folder / "out.anything").read_text().startswith("step: 2 graphs")


@pytest.mark.later
@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_standard_output(folder: Path, out: str) -> None:
    done = explain(folder, out)
    assert done.returncode == 0 and done.stderr == "" and done.stdout.startswith("done\nstep: 2 graphs")
    # Into a file: what the program has printed stays.
    assert explain(folder, out, shell="> printed.txt").returncode == 0
    first, second = [re.sub(r"[\d.]+ [mµ]?s of eager calls", "", text) for text in (done.stdout, (folder / "printed.txt").read_text())]
    assert first == second
    # Nobody reads to the end.
    done = explain(folder, out, shell="| head -c 5")
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert sorted(file.name for file in folder.iterdir()) == ["printed.txt", "script.py"]


def test_standard_error_and_pipes(folder: Path) -> None:
    done = explain(folder, "/dev/stderr")
    assert done.stdout == "done\n" and done.stderr.startswith("step: 2 graphs")
    os.mkfifo(folder / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((folder / "pipe").read_text()))
    reader.start()
    done = explain(folder, "pipe")
    reader.join()
    assert done.returncode == 0 and read[0].startswith("step: 2 graphs")
