# %% failing
import torch
import fineline

def f(x):
    if x.sum() > 0:
        return x * 2
    return x - 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
