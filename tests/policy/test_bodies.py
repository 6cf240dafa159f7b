"""Rules inside of what is captured as a graph of its own: bodies of control-flow operators, checkpoints, autograd.Function."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import fineline
from fineline import Policy
from fineline.errors import Forbidden, Undeclared, Unsupported
from tests.policy.doors import Probe, same

X = (torch.arange(4.0) + 1).requires_grad_()


def inner(x):
    return x.cos() * 2


def body(x):
    return inner(x).sin()


class Forward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return body(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x


class Backward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.tan()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return body(x) * grad


AROUND = {
    "cond": lambda x: torch.cond(x.sum() > 0, body, lambda x: x.sin(), (x,)) + 1,
    "map": lambda x: torch._higher_order_ops.map(body, x) + 1,
    "checkpoint": lambda x: checkpoint(body, x, use_reentrant=False) + 1,
    "forward": lambda x: Forward.apply(x) + 1,
    "backward": lambda x: Backward.apply(x) + 1,
}
BREAKS = {
    "disable": Policy(disable=inner),
    "disable_frame": Policy(disable_frame=inner),
    "disallow": Policy(disallow=torch.cos),
    "disallow ATen": Policy(disallow=torch.ops.aten.cos.default),
}
MODES = {"live": {}, "fake": {"options": {"first_call": "compiled"}}, "dynamic": {"dynamic": True}}


def gradient(fn):
    out = fn(X)
    return out.detach(), torch.autograd.grad(out.sum(), X)[0]


def operators(gm):
    found = [str(getattr(n.target, "__name__", n.target)) for n in gm.graph.nodes if n.op.startswith("call_")]
    return found + [name for part in gm.children() for name in operators(part)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", BREAKS)
@pytest.mark.parametrize("name", AROUND)
def test_what_a_rule_takes_out_of_graphs_is_in_none(name, rule, mode):
    """The whole operator runs eagerly, because of that rule: nobody has to declare it once more."""
    fn, policy, probe = AROUND[name], BREAKS[rule], Probe()
    compiled = fineline.compile(fn, backend=probe, policy=policy, breaks="declared", **MODES[mode])
    for _ in range(3):
        for ours, theirs in zip(gradient(compiled), gradient(fn), strict=True):
            same(ours, theirs)
    found = [name for gm in probe.modules for name in operators(gm)]
    assert "add" in found and not {"cos", "Forward_apply", "Backward_apply"} & set(found)
    told = fineline.explain(fn, policy=policy)(X)
    assert str(policy.rules[0]) in [e.rule for e in told.breaks] and any(told.rules.values())
    with pytest.raises(Unsupported) as caught:
        fineline.compile(fn, backend="eager", policy=policy, fullgraph=True, **MODES[mode])(X)
    assert str(policy.rules[0]) in str(caught.value) and caught.value.where.startswith(__file__)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", [Policy(forbid=inner), Policy(forbid=torch.cos)], ids=["function", "operator"])
@pytest.mark.parametrize("name", AROUND)
def test_what_is_forbidden_is_an_error(name, rule, mode):
    before = torch.get_rng_state()
    with pytest.raises(Forbidden) as caught:
        fineline.compile(AROUND[name], backend="eager", policy=rule, **MODES[mode])(X)
    line = (body if rule.rules[0].selector.kind == "object" else inner).__code__.co_firstlineno + 1
    assert caught.value.id == "FL105" and caught.value.where == f"{__file__}:{line}"
    assert torch.equal(before, torch.get_rng_state())


# -- what only Python can do -------------------------------------------------------------------------------------------
def printing(where):
    def said(place, x):
        if place == where:
            print(place)
        return x

    class Says(Function):
        @staticmethod
        def forward(ctx, x):
            return said("forward", x.cos())

        @staticmethod
        def backward(ctx, grad):
            return said("backward", grad * 3)

    return lambda x: Says.apply(x * 2) + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("where", ["forward", "backward"])
def test_a_function_that_prints_does_so_at_each_call(where, backend, capsys):
    fn = printing(where)
    compiled = fineline.compile(fn, backend=backend)
    for _ in range(3):
        for ours, theirs in zip(gradient(compiled), gradient(fn), strict=True):
            same(ours, theirs)
        assert capsys.readouterr().out == f"{where}\n" * 2
    with pytest.raises(Undeclared):
        fineline.compile(fn, backend=backend, breaks="declared")(X)
