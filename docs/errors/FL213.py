# %% failing
import fineline

@fineline.disallow_in_graph
def helper(x):
    return x * 2

# %% fixed
import torch
import fineline

@fineline.disable
def helper(x):
    return x * 2

print(fineline.compile(lambda x: helper(x) + 1, backend="eager")(torch.ones(3)))
