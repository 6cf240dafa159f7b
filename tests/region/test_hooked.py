"""Compiled callables under hooks on saved tensors: what the backward pass runs again must save what the forward pass saved."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import fineline

X = torch.rand(3, 4)


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
