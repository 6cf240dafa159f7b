# %% event
import torch
import fineline

def f(x, slope):
    return torch.nn.functional.leaky_relu(x, slope) * 2

step = fineline.compile(f, backend="aot_eager", dynamic=True)
step(torch.ones(3), 0.1)
print(fineline.report(step).events)
