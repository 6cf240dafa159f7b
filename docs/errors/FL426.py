# %% event
import torch
import fineline

def deep(n):
    return deep(n + 1)

def f(x):
    try:
        return x + deep(0)
    except RecursionError:
        return x - 1

print(fineline.explain(f)(torch.ones(3)))
