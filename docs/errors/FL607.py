# %% failing
import torch
import fineline

fineline.export(lambda x: x + 1, torch.ones(3), constraints=[("x", 0)])

# %% fixed
import torch
import fineline

def f(x):
    return x + 1

x = torch.ones(3)
fineline.mark_dynamic(x, 0, min=2, max=64)
graph, guards = fineline.export(f, x)
print(graph(torch.ones(5)))
