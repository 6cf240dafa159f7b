# %% failing
import torch
import fineline

def log(names):
    for name in names:
        print(name)

def f(x):
    y = x.relu()
    log(["layer"] * 20)
    return y + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

@fineline.disable
def log(names):
    for name in names:
        print(name)

def f(x):
    y = x.relu()
    log(["layer"] * 20)
    return y + 1

print(fineline.compile(f, backend="eager")(torch.ones(3)))
