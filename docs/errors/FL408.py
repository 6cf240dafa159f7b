# %% event
import torch
import fineline

def f(x):
    raise ValueError("no such layer")

step = fineline.compile(f, backend="eager")
try:
    step(torch.ones(3))
except ValueError:
    print(fineline.report(step))
