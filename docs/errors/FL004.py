# %% event
import torch
import fineline

def helper(x):
    return x * 2

def f(x):
    return helper(x) + 1

print(fineline.explain(f)(torch.ones(3)).tree)
