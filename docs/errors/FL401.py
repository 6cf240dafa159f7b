# %% failing
import torch
import fineline

def f(x):
    y = x.relu()
    fineline.graph_break()
    return y + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    y = x.relu()
    return y + 1

print(fineline.compile(f, backend="eager")(torch.ones(3)))
