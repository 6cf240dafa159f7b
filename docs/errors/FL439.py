# %% failing
import inspect
import torch
import fineline

def names():
    return sorted(inspect.currentframe().f_back.f_locals)

def f(x):
    scale = 2
    return x * scale + len(names())

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    scale = 2
    return x * scale + len(["scale", "x"])

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
