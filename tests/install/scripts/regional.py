"""Compiling the repeated block of a model only, in a model with hooks and checkpointing around it."""

import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
cnt = CompileCounterWithBackend("aot_eager")


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = nn.MultiheadAttention(dim, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        y = self.norm(x)
        x = x + self.attn(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8) for _ in range(3)])

    def forward(self, x, remat=False):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if remat else block(x)
        return x


model = Model()
x = torch.randn(2, 5, 8, requires_grad=True)
expected = model(x)
(grad,) = torch.autograd.grad(expected.sum(), x)
seen = []
model.blocks[1].register_forward_hook(lambda module, args, out: seen.append(out.shape))
for block in model.blocks:
    block.compile(backend=cnt, dynamic=False)
for remat in (False, True):
    out = model(x, remat)
    assert torch.allclose(out, expected, atol=1e-5)
    assert torch.allclose(torch.autograd.grad(out.sum(), x)[0], grad, atol=1e-5)
assert len(seen) >= 2 and cnt.frame_count >= 1
