"""Inference: eval, no_grad and inference_mode, half precision, dynamic batch, a thread pool, mode and options."""

import concurrent.futures

import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 4, 3, padding=1)).eval()
compiled = torch.compile(model, mode="reduce-overhead")
torch._dynamo.mark_dynamic(torch.ones(2, 4, 8), 0)
x = torch.randn(2, 4, 8)
for context in (torch.no_grad, torch.inference_mode):
    with context():
        for _ in range(2):
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
with torch.no_grad():
    half = torch.compile(model.to(torch.bfloat16), options={"epilogue_fusion": True})
    assert torch.allclose(half(x.bfloat16()).float(), model(x.bfloat16()).float(), atol=1e-1)
    model.float()
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda n: compiled(x[:1] * n), range(8)))
    assert all(torch.allclose(out, model(x[:1] * n), atol=1e-4) for n, out in enumerate(outs))
torch.compiler.reset()
