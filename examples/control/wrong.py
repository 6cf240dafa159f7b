"""The model of train.py with a compiler that has a fault, which `fineline bisect` finds.

The exit status is 1 if the loss is wrong; with the name of a file it writes the loss there, for a check of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import torch
from textkit.model import Model
from train import TEXTS, WIDTH, WORDS, forward


def faulty(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]) -> Callable:
    """Sums along another dimension than the code says."""
    for node in gm.graph.find_nodes(op="call_method", target="cumsum"):
        node.kwargs = {"dim": -1}
    gm.recompile()
    return gm.forward


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Model(WORDS, WIDTH)
    step = torch.compile(forward, backend=faulty)
    for _ in range(2):
        # fineline runs a compiled graph from the second call on.
        found, expected = step(model, TEXTS)[0], forward(model, TEXTS)[0]
    if sys.argv[1:]:
        Path(sys.argv[1]).write_text(f"loss {found.item():.3f}\n")
    else:
        sys.exit(not torch.allclose(found, expected))
