# %% failing
import collections
import torch
import fineline

def f(x):
    Pair = collections.namedtuple("Pair", "a b")
    return Pair(x + 1, x * 2).a

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import collections
import torch
import fineline

Pair = collections.namedtuple("Pair", "a b")

def f(x):
    return Pair(x + 1, x * 2).a

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
