"""Backends of one's own: a callable, a registered name, one on top of AOTAutograd, a pass over the graph."""

import torch
from functorch.compile import make_boxed_func
from torch._dynamo import register_backend
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import lookup_backend

seen = []


def my_backend(gm: torch.fx.GraphModule, example_inputs: list[torch.Tensor]):
    seen.append(len(example_inputs))
    for node in gm.graph.nodes:
        if node.op == "call_function" and node.target is torch.relu:
            node.target = torch.sigmoid
    gm.graph.lint()
    gm.recompile()
    return gm.forward


@register_backend
def counted_backend(gm, example_inputs):
    seen.append("counted")
    return lookup_backend("eager")(gm, example_inputs)


def fw(gm, example_inputs):
    seen.append("forward")
    return make_boxed_func(gm.forward)


def bw(gm, example_inputs):
    seen.append("backward")
    return make_boxed_func(gm.forward)


def f(x, y):
    return torch.relu(x @ y) + x.sum()


x, y = torch.randn(4, 4), torch.randn(4, 4)
changed = torch.compile(f, backend=my_backend)
changed(x, y)  # fineline's first call runs the function itself
assert torch.allclose(changed(x, y), torch.sigmoid(x @ y) + x.sum(), atol=1e-5)
assert torch.allclose(torch.compile(f, backend="counted_backend")(x, y), f(x, y), atol=1e-5)
assert "counted_backend" in torch._dynamo.list_backends()
x.requires_grad_()
compiled = torch.compile(f, backend=aot_autograd(fw_compiler=fw, bw_compiler=bw))
for _ in range(2):
    x.grad = None
    compiled(x, y).sum().backward()
mine, x.grad = x.grad, None
f(x, y).sum().backward()
assert torch.allclose(mine, x.grad, atol=1e-5)
assert seen == [2, "counted", "forward", "backward"], seen
