# %% failing
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager")
step(torch.ones(3))
with fineline.set_stance("fail_on_recompile"):
    step(torch.ones(3, dtype=torch.float64))

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x + 1, backend="eager")
step(torch.ones(3))
step(torch.ones(3, dtype=torch.float64))
with fineline.set_stance("fail_on_recompile"):
    print(step(torch.ones(3, dtype=torch.float64)))
