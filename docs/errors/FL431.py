# %% failing
import torch
import fineline

def f(x, kind):
    return x * len(kind.__args__)

print(fineline.explain(f)(torch.ones(3), tuple[int, int]))

# %% fixed
import torch
import fineline

def f(x, arguments):
    return x * len(arguments)

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), tuple[int, int].__args__))
