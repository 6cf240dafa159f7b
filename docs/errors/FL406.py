# %% failing
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager")
with fineline.disable():
    step(torch.ones(3))
print(fineline.report(step))

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager")
print(step(torch.ones(3)))
