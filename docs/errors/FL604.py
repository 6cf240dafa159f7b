# %% failing
import torch
import fineline

seen = []

def f(x):
    seen.append(x.shape[0])
    return x + 1

fineline.export(f, torch.ones(3))

# %% fixed
import torch
import fineline

def f(x):
    return x + 1, x.shape[0]

graph, guards = fineline.export(f, torch.ones(3))
print(graph(torch.ones(3)))
