# %% failing
import torch
import fineline

bias = torch.ones(3)

@fineline.allow_in_graph
def shift(x):
    return x + bias

fineline.compile(lambda x: shift(x) * 2, backend="eager")(torch.ones(3))

# %% fixed
import torch
import fineline

bias = torch.ones(3)

@fineline.allow_in_graph
def shift(x, bias):
    return x + bias

print(fineline.compile(lambda x: shift(x, bias) * 2, backend="eager")(torch.ones(3)))
