# %% failing
import torch
import fineline

def f(x):
    with torch.autocast("cpu"):
        return x @ x

fineline.export(f, torch.ones(3, 3), aten_graph=True, pre_dispatch=True)

# %% fixed
import torch
import fineline

def f(x):
    with torch.autocast("cpu"):
        return x @ x

graph, guards = fineline.export(f, torch.ones(3, 3), aten_graph=True)
print(graph(torch.ones(3, 3)))
