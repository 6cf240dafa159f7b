# %% failing
import torch
import fineline

step = fineline.compile(lambda x, scale: x * scale, backend="eager", dynamic=False)
for scale in (1, 2, 3):
    step(torch.ones(3), scale)
print(fineline.report(step))

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x, scale: x * scale, backend="eager", dynamic=False)
for scale in (1, 2, 3):
    print(step(torch.ones(3), torch.tensor(scale)))
