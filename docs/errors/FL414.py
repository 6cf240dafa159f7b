# %% failing
from array import array
import torch
import fineline

sizes = array("q", [0, 0])

def f(x):
    sizes[0] = x.shape[0]
    return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

sizes = [0, 0]

def f(x):
    sizes[0] = x.shape[0]
    return x + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
