# %% failing
import fineline

fineline.compile(lambda x: x + 1, backend="eager", fullgraph=True, breaks="any")

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager", breaks="any")
print(step(torch.ones(3)))
