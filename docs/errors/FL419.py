# %% failing
import torch
import fineline

class Key:
    def __hash__(self):
        return 1

def f(x):
    table = {Key(): 2}
    return x * len(table)

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    table = {"key": 2}
    return x * len(table)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
