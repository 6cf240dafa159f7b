"""PyTorch's warning of a number made of a tensor that requires grad comes once in a process, as an error too where warnings are errors."""

from __future__ import annotations

import subprocess
import sys

import pytest

# A process each, as PyTorch warns once in one; forked, as to import it takes seconds.
PROGRAM = """
import os, sys, warnings, torch, fineline
from fineline.errors import Unsupported

def number(t):
    return torch.ones(2) * float(t)

def caught(t):
    try:
        return torch.ones(2) * float(t)
    except UserWarning as e:
        return str(e)[:30]

def calls(fn, filters):
    for action in filters:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter(action)
            try:
                result = fn(torch.tensor(2.0, requires_grad=True))
            except Unsupported as e:
                result = e.id
            except UserWarning as e:
                result = f"raised {e}"[:30]
        print(result, [(w.category.__name__, w.lineno) for w in said], flush=True)

fn = {"number": number, "caught": caught}[sys.argv[1]]
scalars = {"capture_scalar_outputs": True, "first_call": "compiled"}
for mode in ("eager", "fullgraph", "scalars"):
    child = os.fork()
    if not child:
        if mode == "fullgraph":
            fn = fineline.compile(fn, backend="eager", fullgraph=True)
        elif mode == "scalars":
            fn = fineline.compile(fn, backend="eager", options=scalars)
        calls(fn, sys.argv[2:])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, mode
"""


def said(*arguments: str) -> tuple[list[str], list[str], list[str]]:
    """What eager calls gave and said, those in one graph, and those in graphs that take numbers."""
    out = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    lines = out.stdout.splitlines()
    assert len(lines) == 9
    return lines[:3], lines[3:6], lines[6:]


@pytest.mark.parametrize("name", ["number", "caught"])
def test_the_warning_comes_once(name: str) -> None:
    eager, one, numbers = said(name, "always", "always", "error")
    assert "UserWarning" in eager[0] and "UserWarning" not in eager[1]
    assert one == numbers == eager


@pytest.mark.parametrize("name", ["number", "caught"])
def test_the_warning_that_is_an_error_comes_once(name: str) -> None:
    eager, one, numbers = said(name, "error", "error", "always")
    assert "Converting" in eager[0] and "Converting" not in eager[1]
    assert numbers == eager
    assert one == ["FL102 []", *eager[1:]]
