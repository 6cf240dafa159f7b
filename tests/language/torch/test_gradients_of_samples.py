"""Gradients for each sample without torch.func: by hooks, as opacus does, and by PyTorch's weights that stand for a batch of weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils._per_sample_grad import call_for_per_sample_grads

import fineline


class GradSampleModule(nn.Module):
    """Leaves in each parameter of a linear layer its gradients for the samples of the last batch."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net
        for layer in net.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(self.keep)
                layer.register_full_backward_hook(self.per_sample)

    def keep(self, layer, args, output):
        layer.activations = args[0].detach()

    def per_sample(self, layer, grad_input, grad_output):
        layer.weight.grad_sample = torch.einsum("bo,bi->boi", grad_output[0], layer.activations)
        layer.bias.grad_sample = grad_output[0]

    def forward(self, x):
        return self.net(x)


def by_hooks(net: nn.Module) -> Callable[[Tensor], Tensor]:
    module = GradSampleModule(net)
    return lambda x: module(x).square().sum()


def by_expanded_weights(net: nn.Module) -> Callable[[Tensor], Tensor]:
    """The weights' class answers the operators that it knows by autograd functions, and refuses each other read of a tensor."""
    return lambda x: call_for_per_sample_grads(net, batch_size=x.shape[0])(x).square().sum()


def gradients(make: Callable, compiler: Callable) -> list[Tensor]:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    step, found = compiler(make(net)), []
    for n in range(4):
        # The last batch is smaller.
        step(torch.randn(5 - n // 3, 4)).backward()
        for p in net.parameters():
            found.append(p.grad_sample)
            del p.grad_sample
    return found


@pytest.mark.parametrize("make", [by_hooks, by_expanded_weights])
@pytest.mark.parametrize("options", [{"backend": "eager"}, {"backend": "aot_eager"}, {"backend": "eager", "dynamic": True}], ids=str)
def test_as_in_eager_code(make: Callable, options: dict) -> None:
    expected = gradients(make, lambda fn: fn)
    found = gradients(make, lambda fn: fineline.compile(fn, **options))
    assert len(found) == 16
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(("make", "operators"), [(by_hooks, 7), (by_expanded_weights, 3)])
def test_operators_are_in_graphs(make: Callable, operators: int) -> None:
    """Of the forward pass: what torch.compile captures, or more (6 and 2)."""
    graphs: list[int] = []

    def backend(gm, inputs):
        graphs.append(sum(node.op.startswith("call") for node in gm.graph.nodes))
        return gm.forward

    net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    step = fineline.compile(make(net), backend=backend)
    for _ in range(2):
        step(torch.randn(5, 4)).backward()
        for p in net.parameters():
            del p.grad_sample
    assert sum(graphs) == operators
