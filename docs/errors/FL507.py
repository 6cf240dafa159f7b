# %% failing
import torch
import fineline

def f(x):
    x.data = x.data * 2
    return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    x.mul_(2)
    return x + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
