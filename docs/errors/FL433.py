# %% failing
import torch
import fineline

def double(x):
    return x * 2

def f(x):
    fast = fineline.compile(double, backend="eager")
    return fast(x) + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def double(x):
    return x * 2

fast = fineline.compile(double, backend="eager")

def f(x):
    return fast(x) + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
