"""The package's public names: loaded together, by the first that is read, and only then."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fineline

SOURCE = Path(fineline.__file__)


def test_the_imports_for_type_checkers_say_the_same() -> None:
    [block] = [node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If)]
    imported = {str(node.module): " ".join(alias.name for alias in node.names) for node in block.body if isinstance(node, ast.ImportFrom)}
    assert imported.pop("fineline") == "errors"
    assert imported == dict(fineline._HOMES)
    assert sorted([*" ".join(imported.values()).split(), "errors"]) == sorted(fineline.__all__)


def test_the_version_is_the_same_everywhere() -> None:
    root = SOURCE.parent.parent.parent
    assert tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"] == fineline.__version__
    assert re.findall(r"^## ([\d.]+)", (root / "CHANGELOG.md").read_text(), re.M)[0] == fineline.__version__


# Each in a process of its own, which has imported nothing else.
FIRST = {
    "nothing": "assert 'torch' not in sys.modules and fineline.__version__",
    "dir": "assert {'compile', 'Policy', 'errors', '__version__'} <= set(dir(fineline)) and 'torch' not in sys.modules",
    "a name": "assert fineline.Policy().rules == () and type(fineline) is types.ModuleType and 'compile' in vars(fineline)",
    "star": "exec('from fineline import *'); assert compile is fineline.compile and type(fineline) is types.ModuleType",
    "errors": "assert issubclass(fineline.errors.BadRule, fineline.errors.FinelineError)",
    "a module below": "import fineline.errors; assert 'torch' not in sys.modules and fineline.errors.BadRule",
    "no name": "assert not hasattr(fineline, 'nothing') and 'torch' not in sys.modules",
    "a module of the same name": "import fineline.install, fineline.export; assert fineline.install() is None and callable(fineline.export)",
    "from a module of the same name": "from fineline.export import export; assert fineline.export is export",
    "engine first": "import fineline.api; assert fineline.compile is fineline.api.compile and callable(fineline.install)",
    "set": "fineline.compile = 1; assert fineline.compile == 1",
    "threads": """
import threading
found = []
threads = [threading.Thread(target=lambda name=name: found.append(getattr(fineline, name))) for name in fineline.__all__]
[t.start() for t in threads]
[t.join() for t in threads]
assert len(found) == len(fineline.__all__) and type(fineline) is types.ModuleType""",
    "in captured code": """
import torch
from fineline.api import compile
def f(x):
    fineline.graph_break()
    return x * 2 if fineline.is_compiling() else x * 2.0
assert torch.equal(compile(f, backend="eager")(torch.ones(2)), f(torch.ones(2)))""",
    "pickles": "import pickle; assert pickle.loads(pickle.dumps(fineline.Policy)) is fineline.Policy",
}


@pytest.mark.later
@pytest.mark.parametrize("use", FIRST.values(), ids=FIRST)
def test_the_first_use(use: str) -> None:
    done = subprocess.run([sys.executable, "-c", f"import sys, types, fineline\n{use}"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
