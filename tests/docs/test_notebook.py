"""README in a notebook: its examples are cells of one kernel, its commands are ``!`` cells, and so are things that only notebooks do."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import fineline

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text()
# What README's commands name.
FILES = {
    "mypkg/__init__.py": "",
    "mypkg/io.py": "def load(x):\n    return x + 1\n",
    "train.py": "import torch\nfrom mypkg.io import load\n\n\n@torch.compile(backend='eager')\ndef step(x):\n    return load(x.sin())\n\n\nstep(torch.ones(2))\n",
    # What the compiled function gives is right: there is nothing to find.
    "compare.py": "",
    "breaks.toml": "version = 1\n",
    "fineline.toml": 'disable = [{select = "mypkg.io.*", reason = "reads files"}]\n',
}
# These build the environment that runs the tests, or run all tests.
SKIPPED = re.compile(r"make \w+")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[list[str]], list[str]]:
    """Runs cells in one kernel; -> what each printed or showed."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.setenv("PYTHONPATH", str(Path(fineline.__file__).parent.parent))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")

    def run(cells: list[str]) -> list[str]:
        book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
        book.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
        NotebookClient(book, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
        return ["".join(_shown(output) for output in cell.outputs) for cell in book.cells]

    return run


def _shown(output: nbformat.NotebookNode) -> str:
    text = output.text if output.output_type == "stream" else output.data.get("text/html", output.data["text/plain"])
    return str(text).replace("\r\n", "\n")


def commands() -> list[str]:
    """The indented lines of README, without their comments."""
    return [line.partition("#")[0].strip() for line in re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```", "", README, flags=re.M | re.S), re.M)]


def test_readme(run: Callable[[list[str]], list[str]]) -> None:
    """Every example and every command runs, in a kernel whose builtins have no ``exit`` and ``quit``."""
    examples = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    shell = [command for command in commands() if not SKIPPED.match(command)]
    assert len(examples) > 1
    assert {command.split()[1] for command in shell} == {"run", "why", "audit", "bisect"}
    hidden = "import builtins\n[name for name in ('exit', 'quit') if hasattr(builtins, name)]"
    absent, first, *others = run([hidden, *examples, *(f"!{command}; echo status $?" for command in shell)])
    assert absent == "[]"
    assert "torch.Size([4, 8]) [4]" in first
    assert "graph" in first
    for command, text in zip(shell, others[len(examples) - 1 :], strict=True):
        finds_nothing = "bisect" in command and "there is nothing to find" in text
        assert text.endswith(f"status {int(finds_nothing)}\n"), f"{command}:\n{text}"


CELLS = [
    """import builtins, torch, fineline
from IPython import get_ipython
x = torch.arange(4.0)""",
    # A function of a cell that calls one of another cell; `exit`, which this kernel's builtins lack; what only IPython has.
    "def scale(x):\n    return x * 2",
    """log = []
def step(x, leave=False):
    y = scale(x).sin()
    log.append(y.shape[0])
    print("seen", y.shape[0])
    if leave:
        exit
    return y + get_ipython().execution_count * 0
fast = fineline.compile(step, backend="eager")
for _ in range(3):
    assert torch.equal(fast(x), step(x))
assert log == [4] * 6""",
    # The cell is run again, with another body.
    "def scale(x):\n    return x * 3",
    "assert torch.equal(fast(x), step(x)) and torch.equal(fast(x), (x * 3).sin())",
    "%%time\nassert torch.equal(fast(x + 1), step(x + 1))",
    "%timeit -n 1 -r 1 fast(x)",
    # A cell with await runs as a coroutine.
    "import asyncio\nawait asyncio.sleep(0)\nassert torch.equal(fast(x), step(x))",
    # Errors name the cell's line and quote it.
    """def refused(x):
    if x.sum().item() > 1:
        return x + 1
    return x
try:
    fineline.compile(refused, backend="eager", fullgraph=True)(x)
except fineline.errors.FinelineError as e:
    assert "if x.sum().item() > 1" in str(e) or refused.__code__.co_filename in str(e), e
else:
    raise AssertionError""",
    """def fails(x):
    return [x * 2][3]
import traceback
for _ in range(2):
    try:
        fineline.compile(fails, backend="eager")(x)
    except IndexError as e:
        assert "return [x * 2][3]" in traceback.format_exc()""",
    # A class of a cell, made again by another run of that cell.
    *(["""class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(4, 4)
    def forward(self, x):
        y = super().__getattr__("lin")(x)
        return y.relu() if y.mean() > -100 else y
net = Net()
quick = fineline.compile(net, backend="eager")
assert torch.equal(quick(x), net(x)) and torch.equal(quick(x), net(x))"""] * 2),
    # A module that autoreload puts new code into.
    """%load_ext autoreload
%autoreload 2
from pathlib import Path
import os, sys
sys.path.insert(0, ".")
sys.dont_write_bytecode = True
Path("lib.py").write_text("def f(x):\\n    return x + 1\\n")
import lib
call = fineline.compile(lambda x: lib.f(x), backend="eager")
assert torch.equal(call(x), x + 1) and torch.equal(call(x), x + 1)""",
    """_ = Path("lib.py").write_text("def f(x):\\n    return x + 20\\n")
os.utime("lib.py", (4 * 10**9, 4 * 10**9))""",
    "assert torch.equal(lib.f(x), x + 20) and torch.equal(call(x), x + 20), call(x)",
    # PyTorch's own name, there and back; every compiled function is told of.
    """fineline.install()
again = torch.compile(step, backend="eager")
assert torch.equal(again(x), step(x))
fineline.uninstall()""",
    "%%capture kept\nfast(x)",
    "assert 'seen 4' in kept.stdout",
    "fineline.explain(step)(x)",
]


def test_cells(run: Callable[[list[str]], list[str]]) -> None:
    """What a notebook does besides: cells run again, magics, coroutines, displays."""
    assert "graph" in run(CELLS)[-1]
