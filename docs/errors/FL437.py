# %% failing
import torch
import fineline

def f(x):
    try:
        return x * getattr(x)
    except TypeError:
        return x

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x * getattr(x, "ndim")

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
