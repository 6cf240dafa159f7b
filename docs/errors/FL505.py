# %% failing
import torch
import fineline

def f(x):
    return x * 2 if torch.cudnn_is_acceptable(x) else x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

def f(x, on_cudnn):
    return x * 2 if on_cudnn else x + 1

x = torch.ones(3)
print(fineline.compile(f, backend="eager", fullgraph=True)(x, torch.cudnn_is_acceptable(x)))
