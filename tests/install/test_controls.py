"""Stances, blocks and settings of PyTorch's, on fineline."""

from __future__ import annotations

import gc

import pytest
import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs

import fineline

X = torch.arange(4.0)


@pytest.fixture
def installed():
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()
    torch._dynamo.reset()


def f(x):
    return x.sin() + 1


def graphs(fn):
    recorded = EagerAndRecordGraphs()
    compiled = torch.compile(fn, backend=recorded)
    for _ in range(3):
        assert torch.equal(compiled(X), fn(X))
    return [[n.name for n in gm.graph.nodes if n.op.startswith("call")] for gm in recorded.graphs]


def test_a_stance_from_before(installed):
    fineline.uninstall()
    counter = CompileCounter()
    with torch.compiler.set_stance("force_eager"):
        fineline.install()
        compiled = torch.compile(f, backend=counter)
        compiled(X)
        assert counter.frame_count == 0
        fineline.uninstall()
        compiled(X)
        assert counter.frame_count == 1
    torch._dynamo.reset()
    fineline.install()
    compiled(torch.ones(2))
    assert counter.frame_count == 2


@pytest.mark.parametrize("breaks", ["any", "declared"])
def test_a_block_is_captured_around_once(installed, breaks):
    fineline.install(breaks=breaks)

    def blocked(x):
        with torch.compiler.disable(reason="slow"):
            x = x * 2
        return x.sin()

    heard = []
    fineline.report.events.LISTENERS.all += (heard.append,)
    try:
        assert graphs(blocked) == [["sin"]]
        gc.collect()
        assert graphs(blocked) == [["sin"]]
    finally:
        fineline.report.events.LISTENERS.all = tuple([e for e in fineline.report.events.LISTENERS.all if e != heard.append])
    assert {e.id for e in heard if e.kind == "break"} == {"FL430"} and not [e for e in heard if e.kind == "recompile"]
