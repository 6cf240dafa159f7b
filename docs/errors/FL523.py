# %% failing
import torch
import fineline

def f(x, i):
    try:
        return x[i]
    except IndexError:
        return x[-1]

print(fineline.explain(f)(torch.ones(3), torch.tensor([7])))

# %% fixed
import torch
import fineline

def f(x, i):
    return x[i.clamp(max=len(x) - 1)]

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), torch.tensor([7])))
