# %% event
import torch
import fineline

def f(x):
    print("hello")
    return x + 1

rules = fineline.Policy(disable=print)
print(fineline.explain(f, policy=rules)(torch.ones(3)).rules)
