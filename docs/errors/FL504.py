# %% failing
import numpy
import torch
import fineline

def f(x, weights):
    return x * torch.tensor(weights.max())

print(fineline.explain(f)(torch.ones(3), numpy.ones(2)))

# %% fixed
import numpy
import torch
import fineline

def f(x, weight):
    return x * torch.tensor(weight)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), float(numpy.ones(2).max())))
