# %% failing
import torch
import fineline

biases = {torch.ones(3), torch.zeros(3)}

def f(x):
    for bias in biases:
        x = x + bias
    return x

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

biases = [torch.ones(3), torch.zeros(3)]

def f(x):
    for bias in biases:
        x = x + bias
    return x

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
