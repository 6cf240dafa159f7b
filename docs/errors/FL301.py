# %% failing
import torch
import fineline

def backend(gm, example_inputs):
    raise NotImplementedError("no relu yet")

fineline.compile(lambda x: x.relu(), backend=backend)(torch.ones(3))

# %% fixed
import torch
import fineline

print(fineline.compile(lambda x: x.relu(), backend="eager")(torch.ones(3)))
