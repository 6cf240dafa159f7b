# %% failing
import torch
import fineline

def f(x, scales):
    for scale in scales:
        x = x * scale
    return x

print(fineline.explain(f)(torch.ones(3), memoryview(b"abc")))

# %% fixed
import torch
import fineline

def f(x, scales):
    for scale in scales:
        x = x * scale
    return x

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), list(memoryview(b"abc"))))
