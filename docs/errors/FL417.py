# %% failing
import torch
import fineline

def f(x):
    return x + len(str(x))

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x + 1

x = torch.ones(3)
print(fineline.compile(f, backend="eager", fullgraph=True)(x) + len(str(x)))
