# %% failing
import torch
import fineline

def double(x):
    return x * 2

def f(x):
    return torch.func.functionalize(double)(x) + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def double(x):
    return x * 2

def f(x):
    return torch.func.vmap(double)(x) + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
