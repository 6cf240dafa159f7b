"""The names of PyTorch 2.0: optimize, disable, allow_in_graph, run, config."""

import logging

import torch
import torch._dynamo as dynamo

dynamo.config.verbose = True
dynamo.config.suppress_errors = True
dynamo.config.cache_size_limit = 64
torch._logging.set_logs(graph_breaks=True, recompiles=True, dynamo=logging.WARNING)
dynamo.reset()


@dynamo.disable
def log(x):
    return x.mean().item()


@dynamo.allow_in_graph
def fused(x, y):
    return torch.addmm(x, x, y)


@dynamo.optimize("eager")
def step(x):
    y = fused(x, x)
    value = log(y)
    return y * value


x = torch.randn(4, 4)
expected = torch.addmm(x, x, x) * torch.addmm(x, x, x).mean().item()
for _ in range(3):
    assert torch.allclose(step(x), expected)
assert torch.allclose(dynamo.run(step)(x), expected)
assert dynamo.is_compiling() is False and torch.compiler.is_compiling() is False
with torch._dynamo.config.patch(suppress_errors=False):
    pass


def failing(gm, inputs):
    raise RuntimeError("a backend that does not work")


assert torch.equal(dynamo.optimize(failing)(lambda x: x + 1)(x), x + 1)
torch._logging.set_logs()
dynamo.config.suppress_errors = False
dynamo.config.cache_size_limit = 8
dynamo.config.verbose = False
