# %% failing
import zlib
import torch
import fineline

def f(x, name):
    return x.relu() + zlib.crc32(name) % 10

print(fineline.explain(f)(torch.ones(3), b"layer"))

# %% fixed
import zlib
import torch
import fineline

def f(x, number):
    return x.relu() + number % 10

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), zlib.crc32(b"layer")))
