# %% failing
import enum
import torch
import fineline

def f(x):
    class Scale(enum.Enum):
        SMALL = 2
        LARGE = 8

    return x * Scale.LARGE.value

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import enum
import torch
import fineline

class Scale(enum.Enum):
    SMALL = 2
    LARGE = 8

def f(x):
    return x * Scale.LARGE.value

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
