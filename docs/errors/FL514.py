# %% failing
import torch
import fineline

def f(x, total):
    if x.sum() < 0:
        raise ValueError("negative")
    total.add_(x.sum())
    return x * 2

print(fineline.explain(f)(torch.ones(3), torch.zeros(100_000)))

# %% fixed
import torch
import fineline

def f(x, total):
    if x.sum() < 0:
        raise ValueError("negative")
    return x * 2, total + x.sum()

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), torch.zeros(100_000)))
