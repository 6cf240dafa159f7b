# %% failing
import torch
import fineline

def f(x, mode):
    return x * 2 if mode == "double" else x + len(mode)

step = fineline.compile(f, backend="eager", fullgraph=True, recompile_limit=2)
for mode in ("double", "a", "ab", "abc"):
    step(torch.ones(3), mode)

# %% fixed
import torch
import fineline

def f(x, offset):
    return x + offset

step = fineline.compile(f, backend="eager", fullgraph=True, recompile_limit=2)
for mode in ("a", "ab", "abc"):
    print(step(torch.ones(3), torch.tensor(len(mode))))
