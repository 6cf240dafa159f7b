# %% failing
import torch
import fineline

def f(x, n):
    return x if str(n) == "0" else x * n

step = fineline.compile(f, backend="eager")
for n in (2, 3, 4):
    step(torch.ones(3), n)
print(fineline.report(step))

# %% fixed
import torch
import fineline

def f(x, n):
    return x if n == 0 else x * n

step = fineline.compile(f, backend="eager")
for n in (2, 3, 4):
    print(step(torch.ones(3), n))
