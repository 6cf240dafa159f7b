# %% failing
import torch
import fineline

def backend(gm, example_inputs):
    print(gm.code)

fineline.compile(lambda x: x.relu(), backend=backend)(torch.ones(3))

# %% fixed
import torch
import fineline

def backend(gm, example_inputs):
    return gm.forward

print(fineline.compile(lambda x: x.relu(), backend=backend)(torch.ones(3)))
