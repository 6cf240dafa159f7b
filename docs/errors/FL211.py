# %% failing
import fineline

fineline.Policy(disable=3)

# %% fixed
import torch
import fineline

def helper(x):
    return x * 2

step = fineline.compile(lambda x: helper(x) + 1, backend="eager", policy=fineline.Policy(disable=helper))
print(step(torch.ones(3)))
