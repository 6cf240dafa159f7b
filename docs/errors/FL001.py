# %% event
import torch
import fineline

def f(x):
    return x.relu() + 1

print(fineline.explain(f)(torch.ones(3)).events)
