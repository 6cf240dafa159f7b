# %% failing
import io
import torch
import fineline

def f(x):
    y = x.relu()
    torch.save(y, io.BytesIO())
    return y + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import io
import torch
import fineline

def f(x):
    y = x.relu()
    return y, y + 1

y, z = fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
torch.save(y, io.BytesIO())
print(z)
