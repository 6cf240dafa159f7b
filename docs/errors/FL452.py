# %% failing
import torch
import fineline

def f(x, n):
    for _ in range(90):
        n = (n * 31 + 7) % 1000
    return x * n

step = fineline.compile(f, backend="eager", dynamic=True)
print(fineline.explain(step)(torch.ones(3), 5))

# %% fixed
import torch
import fineline

def f(x, n):
    for _ in range(90):
        n = (n * 31 + 7) % 1000
    return x * n

step = fineline.compile(f, backend="eager", dynamic=True)
print(step(torch.ones(3), torch.tensor(5)))
