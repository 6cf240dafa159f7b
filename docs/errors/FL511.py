# %% failing
import torch
import fineline

calls = []

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        calls.append(1)
        return x * len(calls)

    @staticmethod
    def backward(ctx, grad):
        return grad * len(calls)

print(fineline.explain(lambda x: Scale.apply(x) + 1)(torch.ones(3, requires_grad=True)))

# %% fixed
import torch
import fineline

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None

step = fineline.compile(lambda x: Scale.apply(x, 2) + 1, backend="eager", fullgraph=True)
print(step(torch.ones(3, requires_grad=True)))
