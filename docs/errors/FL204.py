# %% failing
import fineline

def backend(gm, example_inputs):
    return gm.forward

fineline.register_backend(backend, name="eager")

# %% fixed
import torch
import fineline

def backend(gm, example_inputs):
    return gm.forward

fineline.register_backend(backend, name="my_eager")
print(fineline.compile(lambda x: x + 1, backend="my_eager")(torch.ones(3)))
