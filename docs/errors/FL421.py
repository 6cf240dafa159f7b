# %% failing
import torch
import fineline

def f(x):
    return torch.nn.Parameter(x) * 2

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x * 2

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.nn.Parameter(torch.ones(3))))
