# %% failing
import torch
import fineline

TABLE = {}


@torch.compiler.allow_in_graph
def scaled(x, name):
    if name not in TABLE:
        TABLE[name] = len(TABLE) + 2
    return x * TABLE[name]


compiled = fineline.compile(lambda x: scaled(x.sin(), "first").cos(), backend="eager")
compiled(torch.ones(3))
print(fineline.report(compiled))

# %% fixed
import torch
import fineline

TABLE = {}


@torch.compiler.allow_in_graph
def scaled(x, name):
    if name not in TABLE:
        TABLE[name] = len(TABLE) + 2
    return x * TABLE[name]


scaled(torch.ones(3), "first")
compiled = fineline.compile(lambda x: scaled(x.sin(), "first").cos(), backend="eager", fullgraph=True)
print(compiled(torch.ones(3)))
