"""Compiled callables under hooks on saved tensors: what the backward pass runs again must save what the forward pass saved."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fineline

X = torch.rand(3, 4)
NOTED: list[str] = []
# What operators in graphs do: its order among the writes of Python code is that of the graph.
COMPUTED: list[str] = []


@torch.library.custom_op("fineline_hooked::noting", mutates_args=())
def noting(x: torch.Tensor) -> torch.Tensor:
    COMPUTED.append("operator")
    return x * 2


noting.register_fake(torch.empty_like)
noting.register_autograd(lambda ctx, grad: grad * 2)


class Noting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        NOTED.append("function")
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


def marked(x):
    NOTED.append("marked")
    return x * 2


def looping(x):
    for _ in range(40_000):
        pass
    return x


MARKED = torch._dynamo.allow_in_graph(marked)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm, self.drop = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(torch.tanh(self.norm(self.linear(x)))) * 2


class Broken(Block):
    def forward(self, x):
        y = super().forward(x)
        fineline.graph_break()
        return y.sin() + y.cos()


def trained(block, called, steps=3):
    torch.manual_seed(0)
    out = []
    for _ in range(steps):
        x = X.clone().requires_grad_()
        y = checkpoint(called, x * 2, use_reentrant=False)
        y.sum().backward()
        out += [y.detach(), x.grad, block.norm.running_mean.clone(), block.linear.weight.grad.clone()]
        block.zero_grad()
    return out


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [Block, Broken])
def test_checkpointed_blocks(make, backend):
    torch.manual_seed(1)
    plain, block = make(), make()
    block.load_state_dict(plain.state_dict())
    expected = trained(plain, plain)
    compiled = fineline.compile(block, backend=backend)
    got = trained(block, compiled)
    for a, b in zip(expected, got, strict=True):
        assert torch.allclose(a.float(), b.float(), atol=1e-5), (a, b)


def test_a_block_is_captured_once():
    seen = []

    def probe(gm, inputs):
        seen.append(gm)
        return gm.forward

    compiled = fineline.compile(lambda x: torch.tanh(x) * 2, backend=probe)
    for _ in range(3):
        x = X.clone().requires_grad_()
        checkpoint(compiled, x, use_reentrant=False).sum().backward()
    assert len(seen) == 1


def test_other_hooks_see_the_programs_tensors():
    packed = []

    def pack(x):
        packed.append(x.shape)
        return x

    compiled = fineline.compile(lambda x: (x.sin() * x).sum(), backend="eager")
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        compiled(X.clone().requires_grad_())
        n = len(packed)
        compiled(X.clone().requires_grad_())
    assert n and len(packed) == 2 * n


@pytest.mark.parametrize("called", [noting, Noting.apply, marked, looping, lambda x: x], ids=["operator", "function", "marked", "loop", "none"])
def test_what_a_capture_has_done_is_undone_before_the_call_runs_eagerly(called):
    """The capture under hooks is undone, whatever ends it: each effect happens once."""
    written = []

    def fn(x, held):
        NOTED.append("before")
        held["n"] += 1
        y = called(x.sin())
        written.append(len(held))
        held[held["n"]] = "after"
        return y.cos()

    for f in (fn, fineline.compile(fn, backend="eager")):
        NOTED.clear()
        COMPUTED.clear()
        written.clear()
        held = {"n": 0}
        for _ in range(3):
            x = X.clone().requires_grad_()
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                f(x, held).sum().backward()
        found = list(NOTED), list(COMPUTED), list(written), held
        if f is fn:
            expected = found
    assert found == expected


def test_an_operator_that_may_do_more_than_compute_is_captured_on_fakes():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    compiled = fineline.compile(lambda x: noting(x.sin()).cos(), backend=backend)
    COMPUTED.clear()
    for n in range(1, 4):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
            compiled(X.clone().requires_grad_()).sum().backward()
        assert len(graphs) == 1 and len(COMPUTED) == n
