# %% failing
import gc
import torch
import fineline

def f(x):
    return x.relu() + gc.get_count()[0] * 0

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import gc
import torch
import fineline

def f(x, count):
    return x.relu() + count * 0

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), gc.get_count()[0]))
