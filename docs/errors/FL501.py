# %% failing
import torch
import fineline

def f(x):
    with torch.inference_mode():
        y = x * 2
        print("half way")
        return y + 1

step = fineline.compile(f, backend="eager")
for _ in range(2):
    step(torch.ones(3))
print(fineline.report(step))

# %% fixed
import torch
import fineline

def f(x):
    with torch.inference_mode():
        y = x * 2 + 1
    print("half way")
    return y

step = fineline.compile(f, backend="eager")
for _ in range(2):
    print(step(torch.ones(3)))
