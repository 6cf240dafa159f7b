# %% failing
import torch
import fineline

def log(x):
    print("sum:", x.sum())

def f(x):
    log(x)
    return x + 1

fineline.compile(f, backend="eager", breaks="declared")(torch.ones(3))

# %% fixed
import torch
import fineline

def log(x):
    print("sum:", x.sum())

def f(x):
    log(x)
    return x + 1

rules = fineline.Policy(disable=log)
print(fineline.compile(f, backend="eager", breaks="declared", policy=rules)(torch.ones(3)))
