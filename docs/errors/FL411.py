# %% failing
import torch
import fineline

def f(x):
    y = x.relu()
    print("half way")
    return y + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x):
    return x.relu() + 1

print("before")
print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
