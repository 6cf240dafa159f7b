# %% failing
import torch
import fineline

def f(x, n):
    k = n.item()
    return x * 2 if k > 0 else x

fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), torch.tensor(2))

# %% fixed
import torch
import fineline

def f(x, n):
    return torch.where(n > 0, x * 2, x)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), torch.tensor(2)))
