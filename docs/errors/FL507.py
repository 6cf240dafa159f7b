# %% failing
import torch
import fineline

def f(x):
    y = x * 2
    y.data = x + 1
    return y * 3

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    y = x * 2
    y.copy_(x + 1)
    return y * 3

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
