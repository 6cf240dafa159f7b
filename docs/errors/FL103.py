# %% failing
import torch
import fineline

@fineline.disable
def scale(x):
    return x * 2

fineline.compile(lambda x: scale(x) + 1, backend="eager", fullgraph=True)(torch.ones(3))

# %% fixed
import torch
import fineline

def scale(x):
    return x * 2

print(fineline.compile(lambda x: scale(x) + 1, backend="eager", fullgraph=True)(torch.ones(3)))
