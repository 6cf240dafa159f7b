"""fineline in a process where torch.compile was there first."""

from __future__ import annotations

import subprocess
import sys

IMPORT = """
import torch
model = torch.nn.Linear(2, 2)
torch.compile(model, backend="eager")(torch.ones(1, 2))
import fineline
graphs = []
compiled = fineline.compile(torch.nn.Sequential(model), backend=lambda gm, inputs: graphs.append(gm) or gm.forward)
assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))
assert len(graphs) == 1
"""

# After an error, torch.compile leaves its hook for the evaluation of frames in the process. CPython then runs each Python call in C frames
# of its own, whose caller still refers to the arguments, and a tuple at the graph break could seem to have another holder.
HOOK = """
import contextlib
import sys
import torch
import fineline

def references(v):
    return sys.getrefcount(v)

def program(x):
    strides = x.t().stride()
    fineline.graph_break()
    return strides, (x * 2).stride(), x + 1

def reported():
    fineline.reset()
    compiled = fineline.compile(program, backend="eager", dynamic=True)
    assert repr(compiled(torch.ones(3, 4))) == repr(program(torch.ones(3, 4)))
    return str(fineline.report(compiled))

def fails(x):
    torch._dynamo.graph_break()

before, alone = reported(), references(object())
with contextlib.suppress(torch._dynamo.exc.Unsupported):
    torch.compile(fails, backend="eager", fullgraph=True)(torch.ones(1))
assert references(object()) == alone + 1, "the hook is not there"
after = reported()
assert before == after, f"{before}\\n!=\\n{after}"
"""


def run(script: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_import_after_torch_compile_has_run() -> None:
    run(IMPORT)


def test_a_hook_for_frames_changes_no_continuation() -> None:
    run(HOOK)
