# %% failing
import re
import torch
import fineline

def f(x):
    name = re.sub("[0-9]", lambda match: "#", "layer1")
    return x + len(name)

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    name = "".join(["#" if c.isdigit() else c for c in "layer1"])
    return x + len(name)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
