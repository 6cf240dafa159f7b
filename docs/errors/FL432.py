# %% failing
import torch
import fineline

class Config:
    pass

def f(x):
    Config.rows = x.shape[0]
    return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

class Config:
    pass

config = Config()

def f(x):
    config.rows = x.shape[0]
    return x + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
