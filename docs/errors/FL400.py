# %% failing
import torch
import fineline

@fineline.disable
def scale(x):
    return x * 2

print(fineline.explain(lambda x: scale(x) + 1)(torch.ones(3)))

# %% fixed
import torch
import fineline

def scale(x):
    return x * 2

print(fineline.compile(lambda x: scale(x) + 1, backend="eager")(torch.ones(3)))
