"""fineline in a process where torch.compile was there first."""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import torch
model = torch.nn.Linear(2, 2)
torch.compile(model, backend="eager")(torch.ones(1, 2))
import fineline
graphs = []
compiled = fineline.compile(torch.nn.Sequential(model), backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
assert len(graphs) == 1
"""


def test_import_after_torch_compile_has_run() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
