# %% event
import torch
import fineline

def f(x):
    if x.shape[0] < 4:
        raise ValueError("too small")
    return x + 1

step = fineline.compile(f, backend="eager", options={"first_call": "compiled"})
try:
    step(torch.ones(3))
except ValueError:
    print(fineline.report(step).events)
