# %% failing
import fineline

fineline.Policy(disallow="torch.ops.aten.nonzeros")

# %% fixed
import torch
import fineline

step = fineline.compile(lambda x: x.nonzero() + 1, backend="eager", policy=fineline.Policy(disallow="torch.ops.aten.nonzero"))
print(step(torch.ones(3)))
