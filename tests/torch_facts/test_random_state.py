"""Random states, which captures save and compare."""

from __future__ import annotations

import subprocess
import sys

COLLECTED = """
import gc
import torch
import fineline
from fineline.torch_facts.random_state import random_states

def begun(x):
    def numbers():
        try:
            yield x + 1
            yield x + 2
        finally:
            x.sum()
    it = numbers()
    next(it)
    return it

compiled = fineline.compile(begun, backend="eager")
gc.disable()
cycle = [compiled(torch.ones(2))]
cycle.append(cycle)
del cycle
# The next object with references collects.
gc.set_threshold(1, 1, 1)
gc.enable()
print(len(random_states()))
"""


def test_a_collection_while_a_state_is_read_closes_a_generator() -> None:
    done = subprocess.run([sys.executable, "-c", COLLECTED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "1\n", done.stderr
