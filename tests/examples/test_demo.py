"""The demo's last line is the path of its report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.pages import page_data

ROOT = Path(__file__).parent.parent.parent
# With one small model in the place of the large ones, and without the rival.
SCRIPT = """
import sys
import torch
from examples import demo
demo.EXAMPLES = (demo.Example("small", lambda: torch.nn.Linear(2, 2).requires_grad_(False), lambda seed: {"input": torch.ones(2, 2)}),)
demo.FRONT_ENDS = {"fineline": demo.FRONT_ENDS["fineline"]}
sys.argv[1:] = ["--backends", "eager"]
demo.main()
"""


@pytest.mark.later
def test_the_last_line_is_the_path_of_the_report(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run([sys.executable, "-c", SCRIPT], cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _, _, report = done.stdout.splitlines()[-1].rpartition(": ")
    assert report == str(tmp_path / "build" / "demo_report.html")
    assert [function["name"] for function in page_data(Path(report).read_text())["functions"]] == ["Linear"]
