# %% failing
import torch
import fineline

step = fineline.compile(lambda x, n: x + n, backend="eager", dynamic=False, options={"error_on_recompile": True})
step(torch.ones(3), 1)
step(torch.ones(3), 2)

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x, n: x + n, backend="eager", dynamic=False, options={"error_on_recompile": True})
step(torch.ones(3), torch.tensor(1))
print(step(torch.ones(3), torch.tensor(2)))
