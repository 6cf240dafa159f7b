# %% failing
import torch
import fineline

@fineline.assume_constant_result
def mean_size(sizes):
    return sum(sizes) / len(sizes)

def f(x):
    return x * mean_size([*x.shape])

print(fineline.explain(f)(torch.ones(3, 4)))

# %% fixed
import torch
import fineline

@fineline.assume_constant_result
def mean_size(rows, columns):
    return (rows + columns) / 2

def f(x):
    return x * mean_size(x.shape[0], x.shape[1])

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3, 4)))
