# %% failing
import torch
import fineline

def scale(x):
    return x * 2

def f(x):
    scale.rows = x.shape[0]
    return scale(x)

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

class Config:
    pass

config = Config()

def f(x):
    config.rows = x.shape[0]
    return x * 2

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
