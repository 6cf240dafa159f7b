# %% failing
import torch
import fineline
from torch.utils.checkpoint import checkpoint

def block(x):
    print("in the block")
    return x.sin() * 2

def f(x):
    return checkpoint(block, x, use_reentrant=False) + 1

print(fineline.explain(f)(torch.ones(3, requires_grad=True)))

# %% fixed
import torch
import fineline
from torch.utils.checkpoint import checkpoint

def block(x):
    return x.sin() * 2

def f(x):
    return checkpoint(block, x, use_reentrant=False) + 1

y = fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3, requires_grad=True))
print(y.detach())
