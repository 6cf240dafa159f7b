# %% failing
import torch
import fineline

class Handle:
    def __del__(self):
        print("closed")

def f(x):
    handle = Handle()
    return x + 1

print(fineline.explain(f)(torch.ones(3)))

# %% fixed
import torch
import fineline

class Handle:
    def close(self):
        self.closed = True

def f(x):
    handle = Handle()
    handle.close()
    return x + 1

print(fineline.compile(f, backend="eager", fullgraph=True)(torch.ones(3)))
