# %% failing
import torch
import fineline

def f(x, y):
    x.mul_(2)
    return x + y

step, memory = fineline.compile(f, backend="aot_eager"), torch.ones(4)
step(memory[:3], memory[1:])
print(fineline.report(step))

# %% fixed
import torch
import fineline

def f(x, y):
    x.mul_(2)
    return x + y

step, memory = fineline.compile(f, backend="aot_eager"), torch.ones(4)
print(step(memory[:3], memory[1:].clone()))
