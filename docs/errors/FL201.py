# %% failing
import torch
import fineline

def f(x):
    return x + 1

fineline.compile(f(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x + 1

print(fineline.compile(f, backend="eager")(torch.ones(3)))
