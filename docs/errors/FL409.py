# %% failing
import torch
import fineline

def halves(x):
    while True:
        x = x / 2
        yield x

def f(x):
    steps = halves(x)
    return next(steps), steps

step = fineline.compile(f, backend="eager")
step(torch.ones(3))
print(fineline.report(step))

# %% fixed
import torch
import fineline

def halves(x, count):
    for _ in range(count):
        x = x / 2
        yield x

def f(x):
    steps = halves(x, 3)
    return next(steps), list(steps)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
