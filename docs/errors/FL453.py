# %% failing
import numpy
import torch
import fineline

def f(x):
    a = x.numpy()
    return torch.from_numpy(numpy.interp(a, [0, 1], [2, 3]))

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return torch.from_numpy(x.numpy().clip(0, 1) + 2)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
