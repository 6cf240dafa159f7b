# %% failing
import torch
import fineline

too_small = ValueError("too small")

def f(x):
    try:
        if x.shape[0] < 4:
            raise too_small from None
    except ValueError:
        return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    try:
        if x.shape[0] < 4:
            raise ValueError("too small") from None
    except ValueError:
        return x + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
