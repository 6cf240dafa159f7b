"""The tutorial on two processes, as a user runs it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes
PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorials" / "two_processes.md"


def test_the_script_of_the_tutorial_runs(tmp_path: Path) -> None:
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    (tmp_path / "train.py").write_text(script)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert ran.returncode == 0, ran.stderr[-4000:]
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", ran.stdout)]
    assert len(losses) == 4 and losses[-1] < losses[0] and "2 processes have the same weights" in ran.stdout
