# %% failing
import torch
import fineline

scale = torch.ones(3, requires_grad=True)

@fineline.assume_constant_result
def weight():
    return scale * 2

print(fineline.explain(lambda x: x * weight())(torch.ones(3)))

# %% fixed
import torch
import fineline

scale = torch.ones(3, requires_grad=True)

@fineline.assume_constant_result
def weight():
    return (scale * 2).detach()

print(fineline.compile(lambda x: x * weight(), backend="eager")(torch.ones(3)))
