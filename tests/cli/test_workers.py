"""The other Pythons that a program under ``fineline run`` starts: on fineline, with the same rules, and in the report."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

# They start some sixty Pythons.
pytestmark = pytest.mark.later

# Starts one process in each way; each compiles a function of its own name, and prints on whose compiler.
LAUNCHER = '''
import multiprocessing, os, signal, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
import torch
import worker

HERE = os.path.dirname(os.path.abspath(__file__))
WORKER = os.path.join(HERE, "worker.py")

def shell(*command):
    subprocess.run([sys.executable, *command], check=True)

def by_context(kind):
    process = multiprocessing.get_context(kind).Process(target=worker.work, args=(kind,))
    process.start()
    process.join()

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, i):
        worker.work("loader")
        return i

if __name__ == "__main__":
    worker.work("first")
    for kind in ("spawn", "fork", "forkserver"):
        by_context(kind)
    torch.multiprocessing.spawn(worker.ranked, args=("mp_spawn",), nprocs=1)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        pool.submit(worker.work, "pool").result()
    list(torch.utils.data.DataLoader(Data(), num_workers=1))
    if os.fork() == 0:
        worker.work("os_fork")
        sys.exit(0)  # leaves by the way of the first process
    os.wait()
    if os.fork() == 0:
        worker.work("killed")
        os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    shell(WORKER, "subprocess")
    shell("-c", "import worker; worker.work('command')")
    shell(WORKER, "nested", "again")
    subprocess.run(f"{sys.executable} {WORKER} shell", shell=True, check=True)
    # With the address: a machine's own name may lead nowhere, and torchrun would try it for minutes.
    where = ("--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--local-addr=127.0.0.1")
    shell("-m", "torch.distributed.run", "--nproc-per-node=2", "--master-port=0", *where, WORKER, "torchrun")
'''
WORKER = '''
import subprocess, sys
import torch
from library import hidden

def work(kind):
    def step(x):
        return hidden(x.sin()).cos()

    step.__qualname__ = kind
    compiled = torch.compile(step, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    # One write: two ranks share the stream.
    print(kind + " " + type(compiled).__module__.partition(".")[0] + chr(10), end="", flush=True)

def ranked(rank, kind):
    work(kind)

if __name__ == "__main__":
    work(sys.argv[1])
    if sys.argv[2:]:
        subprocess.run([sys.executable, __file__, "again"], check=True)
'''
LIBRARY = """
def hidden(x):
    return x * 2
"""
KINDS = (
    "first", "spawn", "fork", "forkserver", "mp_spawn", "pool", "loader", "os_fork", "killed", "subprocess", "command", "nested", "again", "shell",
    "torchrun",
)  # fmt: skip


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=folder, env=env, timeout=300)


@pytest.fixture(scope="module")
def launched(tmp_path_factory):
    """What a run printed, and its report."""
    folder = tmp_path_factory.mktemp("launcher")
    (folder / "launch.py").write_text(LAUNCHER)
    (folder / "worker.py").write_text(WORKER)
    (folder / "library.py").write_text(LIBRARY)
    (folder / "rules.toml").write_text('disable = ["library.hidden"]\n')
    command = ["-m", "fineline", "run", "--policy", "rules.toml", "--explain", "out.json", "launch.py"]
    done = run(folder, *command, PYTHONPATH=os.pathsep.join([os.environ.get("PYTHONPATH", ""), str(folder)]))
    assert done.returncode == 0, done.stderr
    return done, json.loads((folder / "out.json").read_text())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_way_to_start_a_process(launched, kind):
    done, facts = launched
    times = 2 if kind == "torchrun" else 1
    assert done.stdout.split("\n").count(f"{kind} fineline") == times, done.stdout + done.stderr
    processes = [facts, *facts["processes"]]
    found = [(process, function) for process in processes for function in process["functions"] if function["name"] == kind]
    assert len(found) == times
    for process, function in found:
        assert (function["graphs"], len(function["program"]) > 0, len(function["guards"]) > 0) == (2, True, True)
        [graph_break] = [event for event in function["events"] if event["kind"] == "break"]
        assert graph_break["rule"].startswith("disable(library.hidden) at rules.toml:1")
        assert (process is facts) == (kind == "first")
        if kind == "killed":
            # What it has told before.
            assert function["counted"] and 0 < function["ran"]["captured"] <= 6
        else:
            assert function["ran"] == {"captured": 6, "eager": 0, "skipped": 3}
    if kind == "torchrun":
        assert sorted(process["rank"] for process, _ in found) == ["0", "1"]


@pytest.mark.slow
def test_rules_are_counted_over_all_processes(launched):
    _, facts = launched
    [rule] = [rule for rule in facts["rules"] if rule["selector"] == "library.hidden"]
    assert rule["times"] >= len(KINDS) + 1
    assert len({process["pid"] for process in facts["processes"]}) == len(facts["processes"]) == len(KINDS)


# -- what a Python is to notice of it ------------------------------------------------------------------------------------------
STARTUP = Path(__file__).parents[2] / "src" / "fineline" / "cli" / "startup"


def started(folder: Path, code: str, *flags: str, **environment: str) -> subprocess.CompletedProcess:
    """A Python as a run starts it."""
    path = os.pathsep.join([str(STARTUP), str(folder), os.environ.get("PYTHONPATH", "")])
    return run(folder, *flags, "-c", code, **{"PYTHONPATH": path, "FINELINE_RUN": "{}", **environment})


def test_a_python_without_torch_loads_nothing(tmp_path):
    code = "import sys, json; print([m for m in sys.modules if m.partition('.')[0] in ('torch', 'fineline')], sys.path)"
    code += "; print(sys.modules['sitecustomize'].__file__)"
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = 1")
    done = started(tmp_path, code + "; print(sys.own)")
    assert (done.returncode, done.stderr) == (0, "") and str(STARTUP) not in done.stdout
    assert done.stdout.startswith("[]") and str(tmp_path / "sitecustomize.py") in done.stdout and done.stdout.endswith("1\n")


def test_an_error_in_another_sitecustomize_is_told_as_ever(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("1 / 0")
    ours, plain = started(tmp_path, "print(1)"), started(tmp_path, "print(1)", FINELINE_RUN="", PYTHONPATH=str(tmp_path))
    assert ours.stdout == plain.stdout == "1\n"
    assert "ZeroDivisionError" in plain.stderr and ours.stderr.splitlines()[-1] == plain.stderr.splitlines()[-1]


TORCH = '''
def compile(f, **how):
    return ("stock", f)

class nn:
    pass
'''


@pytest.mark.parametrize("package", [TORCH, "version = 1.13\n", "raise ImportError('broken')\n"], ids=["no fineline", "old", "broken"])
def test_a_python_without_fineline_goes_on(tmp_path, package):
    """... with a PyTorch of its own: that of another environment, for one."""
    (tmp_path / "torch.py").write_text(package)
    (tmp_path / "fineline.py").write_text("raise ImportError('not here')")
    code = "try:\n import torch\n print(torch.compile(len)[0], torch.compile.__name__)\nexcept Exception as e: print(type(e).__name__)"
    ours, plain = started(tmp_path, code), started(tmp_path, code, FINELINE_RUN="", PYTHONPATH=str(tmp_path))
    assert (ours.returncode, ours.stdout) == (plain.returncode, plain.stdout)
    assert ("stays on PyTorch's own compiler" in ours.stderr) == (package is TORCH)


LOADED = """
import sys, torch
print("fineline" in sys.modules, type(torch.__spec__.loader).__name__, torch.compile.__name__, torch.__loader__ is torch.__spec__.loader)
model = torch.nn.Linear(2, 2)
{}
print(type(made).__module__.partition(".")[0], "fineline" in sys.modules)
"""


@pytest.mark.parametrize(
    "made",
    [
        "made = torch.compile(model)", "from torch import compile; made = compile(model)", "made = torch.compiler.compile(model)",
        "model.compile(backend='eager'); made = model._compiled_call_impl", "import torch._dynamo; made = torch._dynamo.optimize('eager')(model)",
        "import fineline; fineline.install(); made = torch.compile(model)", "torch.optim.SGD(model.parameters()); made = torch.compile(model)",
    ],
)  # fmt: skip
def test_fineline_is_installed_when_something_is_compiled(tmp_path, made):
    done = started(tmp_path, LOADED.format(made))
    assert done.stdout.splitlines() == ["False SourceFileLoader compile True", "fineline True"], done.stderr


def test_torch_itself_keeps_its_compiler(tmp_path):
    code = "import torch; exec('import torch; made = torch.compile(len)', space := {'__name__': 'torch.somewhere'}); print(type(space['made']).__name__)"
    assert started(tmp_path, code).stdout == "function\n"


# -- reports ----------------------------------------------------------------------------------------------------------------------
def test_each_rank_of_a_launcher_has_its_own_report(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "library.py").write_text(LIBRARY)
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "--local-addr=127.0.0.1"]
    done = run(tmp_path, *launcher, "-m", "fineline", "run", "--explain", "out.txt", "worker.py", "torchrun")
    assert done.returncode == 0, done.stderr
    assert sorted(file.name for file in tmp_path.glob("out*")) == ["out.rank0.txt", "out.rank1.txt"]
    assert "torchrun: 1 graph" in (tmp_path / "out.rank1.txt").read_text()


def test_the_text_names_the_processes(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    (tmp_path / "library.py").write_text(LIBRARY)
    (tmp_path / "launch.py").write_text("import subprocess, sys; subprocess.run([sys.executable, 'worker.py', 'sub'], check=True)")
    done = run(tmp_path, "-m", "fineline", "run", "--explain", "out.txt", "launch.py")
    text = (tmp_path / "out.txt").read_text()
    assert done.returncode == 0 and text.startswith("process ") and "(worker.py):\n\nsub: 1 graph" in text, done.stderr + text
    done = run(tmp_path, "-m", "fineline", "run", "--explain", "out.txt", "-m", "this")
    assert (tmp_path / "out.txt").read_text() == "No compiled function was called.\n"
