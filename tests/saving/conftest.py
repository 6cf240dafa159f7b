"""Programs that are saved in one process and loaded in another."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

# What both processes begin with. `counted` is a backend that runs the graph and counts its compilations.
HEAD = """\
import os, sys
import torch
from torch import nn
import fineline
from users_code import *

torch.manual_seed(0)
x = torch.randn(3, 4)

def kinds(compiled):
    return [event.kind for event in fineline.report(compiled).events]

def events(compiled, kind):
    return [event for event in fineline.report(compiled).events if event.kind == kind]
"""


class Project:
    """A folder with a module of the user's, in which processes run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, code: str) -> None:
        """Writes the module ``users_code``."""
        (self.folder / "users_code.py").write_text(f"import torch\nfrom torch import nn\nimport fineline\n{textwrap.dedent(code)}")

    def run(self, code: str, **environment: str) -> str:
        """Runs a program in a new process; returns what it prints."""
        own = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment}
        done = subprocess.run(
            [sys.executable, "-c", HEAD + textwrap.dedent(code)], cwd=self.folder, capture_output=True, text=True, timeout=300, env=own
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def save_all(self, programs: int = 1) -> None:
        """Saves the captures of one call of each function in the module's ``ALL``: as many programs of each."""
        self.run(f"""
            for fn in ALL:
                compiled = fineline.compile(fn, backend="eager")
                compiled(x)
                saved = fineline.save(compiled, fn.__name__ + ".captures")
                assert saved == {programs}, (fn, saved, fineline.report(compiled))
            """)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def both(project: Project) -> Callable[[str, str, str], str]:
    """Returns a function that runs two programs on a module, one after the other, and returns what the second prints."""

    def run(module: str, first: str, second: str) -> str:
        project.write(module)
        project.run(first)
        return project.run(second)

    return run
