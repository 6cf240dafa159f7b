# %% failing
import torch
import fineline

def f(x):
    return x + x.is_pinned()

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x, pinned):
    return x + pinned

x = torch.ones(3)
print(fineline.compile(f, backend="eager", fullgraph=True)(x, x.is_pinned()))
