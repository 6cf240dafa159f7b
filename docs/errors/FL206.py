# %% failing
import fineline

fineline.compile(lambda x: x + 1, backend="eager", options={"recompile_limits": 4})

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager", options={"recompile_limit": 4})
print(step(torch.ones(3)))
