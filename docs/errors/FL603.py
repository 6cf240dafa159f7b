# %% failing
import torch
import fineline

def f(x):
    return x + 1, str(x)

fineline.export(f, torch.ones(3))

# %% fixed
import torch
import fineline

def f(x):
    return x + 1, x * 2

graph, guards = fineline.export(f, torch.ones(3))
print(graph(torch.ones(3)))
