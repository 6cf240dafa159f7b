# %% failing
import torch
import fineline

rules = fineline.Policy(forbid=torch.Tensor.item)
step = fineline.compile(lambda x: x / x.max().item(), backend="eager", policy=rules)
step(torch.ones(3))

# %% fixed
import torch
import fineline

rules = fineline.Policy(forbid=torch.Tensor.item)
step = fineline.compile(lambda x: x / x.max(), backend="eager", policy=rules)
print(step(torch.ones(3)))
