# %% failing
import torch
import fineline

def f(x, i, cache):
    cache.add_(1)
    try:
        return x[i]
    except IndexError:
        return x[-1]

print(fineline.explain(f)(torch.ones(3), torch.tensor([1]), torch.zeros(100_000)))

# %% fixed
import torch
import fineline

def f(x, i, cache):
    cache.add_(1)
    return x[i.clamp(max=len(x) - 1)]

step = fineline.compile(f, backend="eager", fullgraph=True)
print(step(torch.ones(3), torch.tensor([1]), torch.zeros(100_000)))
