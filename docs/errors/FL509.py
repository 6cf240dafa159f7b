# %% failing
import torch
import fineline

def f(x):
    return x + x.storage_offset()

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x, offset):
    return x + offset

x = torch.ones(3)
print(fineline.compile(f, backend="eager", fullgraph=True)(x, x.storage_offset()))
