"""The command line: ``fineline run``, ``fineline why``, ``fineline audit``, against what plain Python does."""

from __future__ import annotations

import json
import os
import pkgutil
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import fineline
from fineline.cli.commands import cli, main
from fineline.cli.event_log import Heard
from fineline.policy.marks import MARKS
from fineline.report.events import LISTENERS

DATA = """import torch

@torch.compiler.disable(reason="reads a file")
def load(x):
    return x + int(open(__file__).read(0) or 1)

@torch.compiler.disable
def forgotten(x):
    return x + 2

def tan(x):
    return x.tan()
"""
TRAIN = """import pickle, sys, torch
from mypkg.data import forgotten, load, tan

class Thing:
    pass

@torch.compile(backend="eager")
def step(x):
    x = load(x * 2)
    return tan(forgotten(x)).cos()

if __name__ == "__main__":
    print(sys.argv[1:], sys.path[0] == __import__("os").path.dirname(__file__), __spec__ is None, type(__loader__).__name__)
    print(type(pickle.loads(pickle.dumps(Thing()))) is Thing, sys.modules["__main__"].step is step, __doc__, sorted(globals())[:4])
    print([round(step(torch.ones(2)).sum().item(), 4) for _ in range(3)])
    if "raise" in sys.argv:
        raise ValueError("bad")
    if "which" in sys.argv:
        print(type(step).__module__)
    sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "__init__.py").write_text("")
    (tmp_path / "mypkg" / "data.py").write_text(DATA)
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    path = [*sys.path]
    yield tmp_path
    sys.path[:] = path
    fineline.set_policy(None)
    fineline.uninstall()
    MARKS.without = ""
    for name in [n for n in sys.modules if n.partition(".")[0] == "mypkg"]:
        del sys.modules[name]


def python(*args):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"})


def same(ours, plain):
    assert (ours.returncode, ours.stdout, ours.stderr) == (plain.returncode, plain.stdout, plain.stderr)


def test_an_unmodified_script_as_with_plain_python(project):
    """`run [--policy FILE] [--explain OUT] script.py ARGS…` runs an unmodified script with `torch.compile` on fineline."""
    (project / "rules.toml").write_text('disable = ["mypkg.data.tan"]\ndisallow = ["torch.sin", "later::*"]\n')
    ours = python("-m", "fineline", "run", "--policy", "rules.toml", "--explain", "out.json", "train.py", "3", "--policy", "-m")
    plain = python("train.py", "3", "--policy", "-m")
    assert ours.stderr.startswith("fineline: FL212: ") and "later::*" in ours.stderr and "at:   rules.toml:2" in ours.stderr
    ours.stderr = ""
    same(ours, plain)
    facts = json.loads((project / "out.json").read_text())
    (step,) = facts["functions"]
    breaks = [e for e in step["events"] if e["kind"] == "break"]
    assert [(e["line"], e["rule"].partition("(")[2].partition(")")[0]) for e in breaks] == [
        (9, "mypkg.data.load"), (10, "mypkg.data.forgotten"), (10, "mypkg.data.tan"),
    ]  # fmt: skip
    rules = {rule["selector"]: rule for rule in facts["rules"]}
    assert rules["mypkg.data.load"]["times"] == 1 and rules["mypkg.data.load"]["reason"] == "reads a file"
    assert rules["mypkg.data.load"]["place"] == f"{project}/mypkg/data.py:3"
    assert rules["mypkg.data.tan"]["place"] == "rules.toml:1" and rules["torch.sin"]["times"] == 0


def test_exit_codes_and_tracebacks(project):
    ours = python("-m", "fineline", "run", "--explain", "out.txt", "train.py", "raise")
    same(ours, python("train.py", "raise"))
    assert ours.returncode == 1 and ours.stderr.count("File ") == 1
    text = (project / "out.txt").read_text()
    assert text.startswith("step: 2 graphs, 3 operators, 2 graph breaks, ") and "1 time: disable(mypkg.data.forgotten)" in text


@pytest.mark.later
def test_modules_too(project):
    same(python("-m", "fineline", "run", "-m", "mypkg.data"), python("-m", "mypkg.data"))
    (project / "mypkg" / "__main__.py").write_text(
        "import sys\nprint(sys.argv, __package__, __spec__.name, sys.path[0])\nfrom . import data\n"
    )
    ours = python("-m", "fineline", "run", "-m", "mypkg", "-x", "y")
    same(ours, python("-m", "mypkg", "-x", "y"))
    assert "'-x', 'y'] mypkg mypkg.__main__" in ours.stdout


def test_breaks(project):
    ours = python("-m", "fineline", "run", "--breaks", "none", "train.py", "0")
    assert ours.returncode == 1 and "FL103" in ours.stderr and "reads a file" in ours.stderr
    ours = python("-m", "fineline", "run", "--breaks", "declared", "train.py", "0", "which")
    assert ours.returncode == 0 and ours.stdout.splitlines()[-1].startswith("fineline."), ours.stderr


def test_pyproject_is_read_by_the_command_line(project):
    (project / "pyproject.toml").write_text('[tool.fineline]\nforbid = "mypkg.data.tan"\n')
    (project / "deep").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "fineline", "run", "../train.py", "0"], capture_output=True, text=True, cwd=project / "deep"
    )
    assert done.returncode == 1 and f"rule: forbid(mypkg.data.tan) at {project}/pyproject.toml:2" in done.stderr


def invoke(*args):
    return CliRunner().invoke(cli, args, obj=[])


def test_why(project):
    """`fineline why NAME`: the decision for a dotted name, file or operator: verb, rule, reason, place; includes built-in rules."""
    (project / "pyproject.toml").write_text(
        '[tool.fineline]\ndisable = [\n  "mypkg/da*.py",\n  {select = "mypkg.data.tan", reason = "slow"},\n]\n'
    )
    assert invoke("why", "mypkg.data.tan").output.splitlines() == [
        "mypkg.data.tan: disable (it runs in Python, with everything it calls)",
        "  rule   disable(mypkg.data.tan), process, selects by exact name",
        "  reason slow",
        "  at     pyproject.toml:4",
    ]
    assert "at     pyproject.toml:3" in invoke("why", "mypkg/data.py").output
    load = invoke("why", "mypkg.data.load").output
    assert f"at     {project}/mypkg/data.py:3" in load and "reason reads a file" in load and ", mark, " in load
    assert invoke("why", "torch.ops.aten.add.Tensor").output.startswith("torch.ops.aten.add.Tensor: allow (")
    assert "built-in" in invoke("why", "builtins.print").output
    (project / "other.toml").write_text('trace = "mypkg.data.tan"\n')
    assert "at     other.toml:1" in invoke("why", "--policy", "other.toml", "mypkg.data.tan").output


@pytest.mark.parametrize(
    "args, words",
    [
        (["why", "mypkg.nothing"], "FL212"),
        (["why", "--policy", "none.toml", "mypkg"], "can't be read"),
        (["run", "--policy", "bad.toml", "train.py"], "at:   bad.toml:2"),
        (["run", "none.py"], "can't open file 'none.py'"),
        (["run", "--breaks", "some", "train.py"], "'some' is not one of"),
        (["run", "--explain", "nowhere/out.txt", "train.py"], "there is no folder"),
        (["run", "--report", "a.html", "--explain", "b.json", "train.py"], "give --report or --explain only once; it was given for a.html, b.json"),
        (["run"], "Missing argument"),
    ],
    ids=str,
)
def test_what_is_wrong_is_said_before_anything_runs(project, args, words):
    (project / "bad.toml").write_text('disable = [\n"mypkg.nothing"]\n')
    done = invoke(*args)
    assert done.exit_code == 2 and words in done.output, done.output


def test_the_console_script():
    scripts = tomllib.loads((Path(fineline.__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
    assert pkgutil.resolve_name(scripts["fineline"]) is main
    assert fineline.__version__ in invoke("--version").output


WORDS = {"COMP_CWORD": "1", "_FINELINE_COMPLETE": "bash_complete"}


@pytest.mark.parametrize(
    "args, variables, status, words",
    [
        (["--version"], {}, 0, [fineline.__version__]),
        (["--help"], {}, 0, ["run", "why", "audit", "bisect"]),
        (["run", "--help"], {}, 0, ["--policy", "--explain", "--breaks", "[any|declared|none]"]),
        (["why", "-h"], {}, 0, ["--policy"]),
        (["audit", "-h"], {}, 0, ["--breaks", "--json", "--check"]),
        (["bisect", "-h"], {}, 0, ["--policy", "--check"]),
        (["nothing"], {}, 2, ["No such command"]),
        (["run"], {}, 2, ["Missing argument"]),
        (["run", "--breaks", "some", "x.py"], {}, 2, ["'some' is not one of"]),
        ([], {**WORDS, "COMP_WORDS": "fineline "}, 0, ["plain,audit", "plain,bisect", "plain,run", "plain,why"]),
        ([], {**WORDS, "COMP_WORDS": "fineline audit --", "COMP_CWORD": "2"}, 0, ["plain,--policy", "plain,--json", "plain,--check"]),
        ([], {**WORDS, "COMP_WORDS": "fineline bisect --", "COMP_CWORD": "2"}, 0, ["plain,--policy", "plain,--check"]),
        ([], {**WORDS, "COMP_WORDS": "fineline run --breaks d", "COMP_CWORD": "3"}, 0, ["plain,declared"]),
        ([], {**WORDS, "COMP_WORDS": "fineline run --policy p", "COMP_CWORD": "3"}, 0, ["file,p"]),
        ([], {**WORDS, "COMP_WORDS": "fineline run tr", "COMP_CWORD": "2"}, 0, ["file,tr"]),
        ([], {**WORDS, "COMP_WORDS": "fineline run x.py da", "COMP_CWORD": "3"}, 0, ["file,da"]),
        ([], {"_FINELINE_COMPLETE": "zsh_source"}, 0, ["#compdef fineline"]),
        ([], {"_FINELINE_COMPLETE": "fish_source"}, 0, ["_fineline_completion"]),
    ],
    ids=str,
)
def test_words_do_without_pytorch(args, variables, status, words):
    """Help, the version, completion and mistakes in options are answered without importing PyTorch, NumPy or rich."""
    code = "import atexit, sys\nfrom fineline.cli.commands import main\n"
    code += "atexit.register(lambda: print({'torch', 'numpy', 'rich'} & {*sys.modules}))\nmain()"
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, env={**os.environ, **variables})
    assert done.returncode == status, done.stderr
    assert done.stdout.endswith("set()\n"), done.stdout
    assert [word for word in words if word not in done.stdout + done.stderr] == []


LIB = """import torch
torch.library.define("late_ops::swish", "(Tensor x) -> Tensor")
"""
STARTS = """import multiprocessing, subprocess, sys, torch
torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
def child():
    import late_lib
if __name__ == "__main__":
    way = sys.argv[1]
    if way == "import":
        import late_lib
    elif way == "subprocess":
        subprocess.run([sys.executable, "-c", "import torch, late_lib; torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1))"], check=True)
    elif way in ("fork", "spawn"):
        process = multiprocessing.get_context(way).Process(target=child)
        process.start()
        process.join()
    elif way == "raise":
        raise ValueError("bad")
    elif way.isdigit():
        sys.exit(int(way))
"""


@pytest.mark.later
@pytest.mark.parametrize(
    ("way", "rule", "status", "said"),
    [
        ("import", "late_ops::swish", 0, ""), ("subprocess", "late_ops::swish", 0, ""), ("fork", "late_ops::swish", 0, ""),
        ("spawn", "late_ops::swish", 0, ""), ("nothing", "late_ops::swish", 2, "no operator late_ops::swish is registered"),
        ("import", "late_ops::swishh", 2, "no operator late_ops::swishh is registered"), ("0", "late_ops::*", 2, "matches 'late_ops::*'"),
        ("3", "late_ops::*", 3, "matches 'late_ops::*'"), ("raise", "late_ops::*", 1, "matches 'late_ops::*'"),
    ],
)  # fmt: skip
def test_an_operator_that_never_comes(project, way, rule, status, said):
    """... is exit status 2 where the program itself ends well, unless another of its processes has known the operator."""
    (project / "late_lib.py").write_text(LIB)
    (project / "starts.py").write_text(STARTS)
    (project / "rules.toml").write_text(f'disallow = ["{rule}"]\n')
    done = python("-m", "fineline", "run", "--policy", "rules.toml", "starts.py", way)
    assert done.returncode == status and said in done.stderr and ("FL212" in done.stderr) is bool(said), done.stderr


@pytest.mark.parametrize("rule", ["aten::swishh", "torch.ops.aten.swishh", "aten::zzz*"])
def test_a_complete_namespace(project, rule):
    """... has no more operators than there are: the mistake is an error before anything runs."""
    (project / "rules.toml").write_text(f'disallow = ["{rule}"]\n')
    done = python("-m", "fineline", "run", "--policy", "rules.toml", "train.py", "0")
    assert done.returncode == 2 and done.stderr.startswith("FL212: ") and done.stdout == ""


@pytest.mark.parametrize("topics", ["graph_breaks,recompiles", "+dynamo"])
def test_torch_logs(project, topics):
    (project / "s.py").write_text(
        "import torch\ndef f(x): return x * x.sum().item()\nf = torch.compile(f, backend='eager')\nf(torch.ones(2)); f(torch.ones(2) * 3)\n"
    )
    words = [sys.executable, "-m", "fineline", "run", "s.py"]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "TORCH_LOGS": topics})
    assert "fineline.breaks: f: break FL502 at " in done.stderr and "s.py:2" in done.stderr and "fineline.recompiles: f: recompile " in done.stderr
    assert ("fineline.graphs: " in done.stderr) is (topics == "+dynamo")


def test_a_module_that_is_not_there(project):
    done = invoke("run", "-m", "mypkg.nothing")
    assert done.exit_code == 1 and "No module named mypkg.nothing" in done.output


def test_a_rule_or_mark_can_be_left_out(project):
    """For the audit, which "captures once without each"."""
    x = torch.ones(2)

    def helper(x):
        return x + 1

    def count(fn, **how):
        return len(fineline.explain(lambda x: fn(x) * 2, **how)(x).breaks)

    policy = fineline.Policy(disable=helper)
    assert count(helper, policy=policy) == 1
    MARKS.without = policy.rules[0].key
    assert count(helper, policy=policy) == 0
    with policy:
        assert count(helper) == 0
    fineline.install()
    for disable in (fineline.disable, torch.compiler.disable, torch._dynamo.disable):
        MARKS.without = ""
        key = MARKS.get(disable(helper)).key
        MARKS.without = key.rpartition(":")[0] + f":{sys._getframe().f_lineno + 1}"
        assert count(disable(helper)) == 0
        MARKS.without = ""
        assert count(disable(helper)) == 1
    assert count(torch.sin) == 0
    fineline.disallow_in_graph(torch.sin)
    key = next(m.key for m in MARKS if m.verb == "disallow")
    assert count(torch.sin) == 1
    fineline.reset()
    MARKS.without = key.rpartition(":")[0] + f":{sys._getframe().f_lineno + 1}"
    fineline.disallow_in_graph(torch.sin)
    assert count(torch.sin) == 0


@pytest.mark.slow
def test_the_audit(project):
    """Which rules and marks fired, how often, which never matched, and which could be removed."""
    (project / "rules.toml").write_text('disable = "mypkg.data.tan"\nforbid = "torch.sin"\n')
    done = python("-m", "fineline", "audit", "--policy", "rules.toml", "train.py", "0")
    rows = {cells[1].strip(): cells for line in done.stdout.splitlines() if len(cells := line.split("│")) == 7}
    assert done.returncode == 0 and done.stderr == ""
    said = {name: (cells[3].strip(), cells[4].strip()) for name, cells in rows.items()}
    times, verdict = said.pop("disable(mypkg.data.load)")
    assert times == "1" and verdict.startswith("needed: without it there are ") and verdict.endswith(" graph breaks, not 3")
    assert said == {
        "disable(mypkg.data.forgotten)": ("1", "could be removed"),
        "disable(mypkg.data.tan)": ("1", "could be removed"),
        "forbid(torch.sin)": ("0", "never matched"),
    }
    assert rows["forbid(torch.sin)"][2].strip() == "rules.toml:2"
    assert "exit status 0, 2 graphs, 3 graph breaks; 4 rules and marks, 3 not needed" in done.stdout


BLOCKS = """import torch, fineline

@torch.compile(backend="eager")
def step(x):
    torch._dynamo.graph_break()
    with torch.compiler.disable():
        x = x * 2
    return x.cos()

with fineline.disable():
    x = torch.ones(2)
for _ in range(3):
    x = step(x)
"""


def test_the_audit_hears_of_blocks_and_graph_breaks(project):
    """They "fired, how often, removable": the audit takes what a run tells, and runs once more without each (see below)."""
    (project / "blocks.py").write_text(BLOCKS)
    fineline.install()
    heard, before = Heard(), LISTENERS.all
    LISTENERS.all = (*before, heard.hear)
    try:
        runpy.run_path(str(project / "blocks.py"))
    finally:
        LISTENERS.all = before
    rules = [r for r in heard.facts()["rules"] if r["place"].startswith(str(project / "blocks.py"))]
    assert {r["place"].rpartition(":")[2]: (r["verb"], r["selector"], r["times"]) for r in rules} == {
        "5": ("graph_break", "", 1), "6": ("disable", "with block", 1), "10": ("disable", "with block", 0),
    }  # fmt: skip


@pytest.mark.parametrize("disable", [fineline.disable, lambda: torch.compiler.disable()], ids=["fineline", "torch"])
def test_blocks_and_graph_breaks_can_be_left_out(project, disable):
    x = torch.ones(2)

    def f(x):
        fineline.graph_break()
        with disable():
            x = x + 1
        return x * 2

    fineline.install()
    before = fineline.explain(f)(x)
    assert len(before.breaks) == 2 and before.ran["skipped"] == 1
    for rule in before.rules:
        MARKS.without = rule.key
        assert [e.rule for e in fineline.explain(f)(x).breaks if e.rule == str(rule)] == []
        assert len(fineline.explain(f)(x).breaks) == 1
    MARKS.without = ""
    with disable():
        said = fineline.explain(f)(x)
    assert said.ran["captured"] == 0
    [MARKS.without] = [rule.key for rule in said.rules]
    if disable is fineline.disable:
        with disable():  # another block
            assert fineline.explain(f)(x).ran["captured"] == 0


@pytest.mark.later
def test_a_copy_ends_as_a_program_does(tmp_path):
    """... whose exit status, threads, exit functions and last words are those of a process of its own."""
    script = tmp_path / "ends.py"
    script.write_text(
        """import atexit, sys, threading, time
atexit.register(print, "bye")
threading.Thread(target=lambda: (time.sleep(0.1), print("late"))).start()
print(sys.argv[1:])
if sys.argv[1] == "raise":
    raise ValueError("no")
sys.exit(int(sys.argv[1]) if sys.argv[1].isdigit() else sys.argv[1])
"""
    )
    ask = "import sys; from fineline.cli import audit, commands\n"
    ask += "for word in sys.argv[2:]:\n    found = audit.Audit([sys.argv[1], word], commands.main).base\n"
    ask += "    print((found.status, found.output, found.errors))"
    words = ("0", "3", "words", "raise")
    copied = subprocess.run([sys.executable, "-c", ask, str(script), *words], capture_output=True, check=True, text=True)
    plain = [subprocess.run([sys.executable, str(script), word], capture_output=True, check=False) for word in words]
    assert copied.stdout.splitlines() == [str((done.returncode, done.stdout, done.stderr)) for done in plain]
