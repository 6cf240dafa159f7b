# %% failing
import torch
import fineline

def f(x):
    return x[x > 1].sum() * 2

print(fineline.explain(f)(torch.arange(4.0)))

# %% fixed
import torch
import fineline

def f(x):
    return torch.where(x > 1, x, 0).sum() * 2

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.arange(4.0)))
