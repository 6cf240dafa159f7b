# %% failing
import fineline

def backend(gm, example_inputs, mode=None, options=None):
    return gm.forward

fineline.compile(lambda x: x + 1, backend=backend, mode="max-autotune", options={"max_autotune": True})

# %% fixed
import torch
import fineline

def backend(gm, example_inputs, mode=None, options=None):
    return gm.forward

step = fineline.compile(lambda x: x + 1, backend=backend, options={"max_autotune": True})
print(step(torch.ones(3)))
