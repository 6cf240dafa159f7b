"""The tutorial on two processes, as a user runs it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.tutorials import FOLDER, read, run

pytestmark = pytest.mark.processes


def test_the_commands_of_the_tutorial_run(tmp_path: Path) -> None:
    done = run(read((FOLDER / "two_processes.md").read_text()), tmp_path)
    assert [status for _, status, _ in done] == [0, 0], done
    for command, _, output in done:
        losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", output)]
        assert len(losses) == 4 and losses[-1] < losses[0] and "2 processes have the same weights" in output, command.line
    reports = [path.read_text() for path in tmp_path.glob("report*.txt")]
    assert len(reports) == 2 and all(report.startswith("DistributedDataParallel: ") for report in reports)
