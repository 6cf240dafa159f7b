# %% failing
import torch
import fineline

numbers = (n for n in (1, 2, 3))

def f(x, numbers):
    return x * next(numbers)

print(fineline.explain(f)(torch.ones(3), numbers))

# %% fixed
import torch
import fineline

numbers = iter([1, 2, 3])

def f(x, number):
    return x * number

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3), 1))
