# %% failing
import torch
import fineline

def f(x):
    y = x.relu() * 2 + x.sin()
    print("half way")
    return y + 1

step = fineline.compile(f, backend="eager", options={"min_graph_operators": 4})
print(fineline.explain(step)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    y = x.relu() * 2 + x.sin()
    print("half way")
    return y + 1

step = fineline.compile(f, backend="eager", options={"min_graph_operators": 1})
print(step(torch.ones(3)))
