# %% failing
import functools
import torch
import fineline

@functools.cache
def double(x):
    return x * 2

def f(x):
    return double(x + 1)

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import functools
import torch
import fineline

def double(x):
    return x * 2

def f(x):
    return double(x + 1)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
