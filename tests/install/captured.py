"""Two functions for PyTorch's names to be tried on, and the nodes of the graphs that are made of one."""

from __future__ import annotations

import torch
import torch._dynamo
from torch._dynamo.testing import EagerAndRecordGraphs

X = torch.arange(4.0)


def f(x):
    return x.sin() + 1


def broken(x):
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def graphs(fn, **how):
    recorded = EagerAndRecordGraphs()
    compiled = torch.compile(fn, backend=recorded, **how)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))
    return [[n.name for n in gm.graph.nodes if n.op.startswith("call")] for gm in recorded.graphs]
