# %% failing
import torch
import fineline

def f(x):
    with fineline.disable():
        y = x.sin()
    return y + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    y = x.sin()
    return y + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
