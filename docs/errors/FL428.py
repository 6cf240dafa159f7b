# %% failing
import torch
import fineline

def f(x):
    for i in range(1000):
        with fineline.disable():
            x = x + i
    return x

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

@fineline.compile(backend="eager")
def body(x, i):
    return x + i

x = torch.ones(3)
for i in range(1000):
    x = body(x, i)
print(x)
