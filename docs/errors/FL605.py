# %% failing
import torch
import fineline

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

fineline.export(Double.apply, torch.ones(3, requires_grad=True))

# %% fixed
import torch
import fineline

class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2

with torch.no_grad():
    graph, guards = fineline.export(lambda x: Double.apply(x), torch.ones(3, requires_grad=True))
    print(graph(torch.ones(3, requires_grad=True)))
