# %% event
import torch
import fineline

def f(x):
    y, mask = torch.native_dropout(x.t(), 0.5, True)
    y = torch.ops.aten.native_dropout_backward(y, mask, 2.0)
    return y + y.stride(0)

step = fineline.compile(f, backend="eager", options={"first_call": "compiled"})
step(torch.ones(3, 4))
print(fineline.report(step).events)
