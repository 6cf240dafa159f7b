# %% failing
import torch
import fineline

def f(x):
    total = 0
    for _ in range(110_000):
        total += x.ndim
    return x + total

step = fineline.compile(f, backend="eager")
step(torch.ones(3))
print(fineline.report(step))

# %% fixed
import torch
import fineline

def f(x, total):
    return x + total

x, total = torch.ones(3), 0
for _ in range(110_000):
    total += x.ndim
print(fineline.compile(f, backend="eager", fullgraph=True)(x, total))
