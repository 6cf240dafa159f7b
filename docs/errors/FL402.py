# %% failing
import torch
import fineline

def scale(x):
    return x * 2

def f(x):
    return torch.compiler.disable(scale)(x) + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

@torch.compiler.disable
def scale(x):
    return x * 2

def f(x):
    return scale(x) + 1

print(fineline.compile(f, backend="eager")(torch.ones(3)))
