# %% failing
import torch
import fineline

fineline.export(lambda x: x.relu() + 1, torch.ones(3), tracing_mode="symbolic")

# %% fixed
import torch
import fineline

def f(x):
    return x.relu() + 1

graph, guards = fineline.export(f, torch.ones(3), tracing_mode="symbolic", aten_graph=True)
print(graph(torch.ones(3)))
