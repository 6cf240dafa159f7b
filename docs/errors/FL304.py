# %% failing
import torch
import fineline

def backend(gm, example_inputs):
    def run(*args):
        raise RuntimeError("launch failed")
    return run

step = fineline.compile(lambda x: x.sin() + 1, backend=backend)
for _ in range(3):
    step(torch.ones(2))  # a capture; a warning and eager code's result; an error

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x.sin() + 1, backend="eager")
for _ in range(3):
    print(step(torch.ones(2)))
