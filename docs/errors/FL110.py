# %% failing
import torch
import fineline

def f(x):
    return x + torch.ones(3, 4)

x = torch.ones(3, 4)
fineline.mark_dynamic(x, 0)
fineline.compile(f, backend="eager")(x)

# %% fixed
import torch
import fineline

def f(x):
    return x + torch.ones(x.shape[0], 4)

x = torch.ones(3, 4)
fineline.mark_dynamic(x, 0)
print(fineline.compile(f, backend="eager")(x))
