# %% failing
import torch
import fineline

def minus(input, other, *, alpha=1, out=None):
    return input + other * -alpha

rules = fineline.Policy(substitute={torch.sub: minus})
print(fineline.explain(lambda x: (x - 2) * 3, policy=rules)(torch.ones(3)))

# %% fixed
import torch
import fineline

def minus(input, other, *, alpha=1, out=None):
    return input + other * -alpha

rules = fineline.Policy(substitute={torch.sub: minus})
step = fineline.compile(lambda x: torch.sub(x, 2) * 3, backend="eager", fullgraph=True, policy=rules)
print(step(torch.ones(3)))
