# %% failing
import torch
import fineline

scale = torch.ones(3, requires_grad=True)

@fineline.assume_constant_result
def weight():
    return scale * 2

step = fineline.compile(lambda x: x * weight(), backend="eager")
for _ in range(2):
    step(torch.ones(3))
print(fineline.report(step))

# %% fixed
import torch
import fineline

scale = torch.ones(3, requires_grad=True)

def weight():
    return scale * 2

step = fineline.compile(lambda x: x * weight(), backend="eager")
for _ in range(2):
    print(step(torch.ones(3)))
