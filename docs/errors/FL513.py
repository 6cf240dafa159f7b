# %% failing
import torch
import fineline

def f(x):
    x.resize_(2)
    return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x[:2] + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
