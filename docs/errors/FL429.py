# %% failing
import torch
import fineline

rules = fineline.Policy(disallow=torch.sin)
print(fineline.explain(lambda x: x.sin() + 1, policy=rules)(torch.ones(3)))

# %% fixed
import torch
import fineline

print(fineline.compile(lambda x: x.sin() + 1, backend="eager", fullgraph=True)(torch.ones(3)))
