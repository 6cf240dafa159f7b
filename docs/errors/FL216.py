# %% failing
import fineline

fineline.Policy(disallow="torch.ops.aten.*", trace="torch.ops.aten.relu")

# %% fixed
import torch
import fineline

rules = fineline.Policy(disallow="torch.ops.aten.*", allow="torch.ops.aten.relu")
print(fineline.compile(lambda x: x.relu(), backend="eager", policy=rules)(torch.ones(3)))
