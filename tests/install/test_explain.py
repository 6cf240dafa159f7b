"""``torch._dynamo.explain`` while installed: its answer has PyTorch's names beside fineline's."""

from __future__ import annotations

import dataclasses

import torch
import torch._dynamo

import fineline

X = torch.arange(4.0)


def broken(x):
    x = x.sin()
    torch._dynamo.graph_break()
    return x.cos()


def test_explain_has_the_names_of_both(installed):
    ours = torch._dynamo.explain(broken)(X)
    nested = torch._dynamo.explain(lambda x: broken(x) + 1)(X)
    fineline.uninstall()
    theirs = torch._dynamo.explain(broken)(X)
    for name in ("graph_count", "graph_break_count", "op_count", "ops_per_graph"):
        assert getattr(ours, name) == getattr(theirs, name), name
    [reason] = ours.break_reasons
    assert "graph_break" in reason.reason and reason.graph_break is True
    assert [str(frame) for frame in reason.user_stack] == [str(frame) for frame in theirs.break_reasons[0].user_stack]
    assert reason.user_stack[-1].line == "torch._dynamo.graph_break()"
    # A break in a function that is called makes one cut.
    assert nested.graph_count == 2 and [f.name for f in nested.break_reasons[0].user_stack] == ["<lambda>", "broken"]
    assert ours.out_guards == ours.guards and ours.guards and "Runtimes" in ours.compile_times
    assert {field.name for field in dataclasses.fields(theirs)} <= set(dir(ours))
