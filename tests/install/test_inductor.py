"""``torch.compile`` as users type it, with its default backend: Inductor's code runs, forwards and backwards."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch._inductor import metrics

import fineline

X = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def installed():
    torch.manual_seed(0)
    fineline.install()
    yield
    fineline.uninstall()
    fineline.reset()


def f(x):
    return torch.softmax(x.sin() * 2 + 1, -1)


def is_inductors(compiled):
    """Whether kernels were generated for all that has been compiled."""
    regions = [r for r in fineline.api.regions() if r.fn is compiled]
    return bool(regions) and all(r.backend.name == "inductor" and r.graphs for r in regions)


@pytest.mark.parametrize(
    "how",
    [
        {}, {"mode": "reduce-overhead"}, {"mode": "max-autotune-no-cudagraphs"}, {"options": {"epilogue_fusion": True, "max_autotune": False}},
        {"fullgraph": True, "backend": "inductor", "mode": "default"}, {"dynamic": True},
    ],
    ids=str,
)  # fmt: skip
def test_a_function(how):
    metrics.reset()
    for compiled in (torch.compile(f, **how), torch.compile(**how)(f)):
        with torch.no_grad():
            assert torch.allclose(compiled(X), f(X), atol=1e-6)
        grads = []
        for fn in (f, compiled, compiled):
            x = X.clone().requires_grad_()
            fn(x).pow(2).sum().backward()
            grads.append(x.grad)
        assert all(torch.allclose(grad, grads[0], atol=1e-5) for grad in grads)
    assert is_inductors(f) and metrics.generated_kernel_count > 0


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Linear(256, 5)

    def forward(self, x):
        return self.head(torch.relu(self.norm(self.conv(x[:, None]))).flatten(1))


def trained(model, called, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), 1e-2, momentum=0.9)
    data = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(2))
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(called(data), torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack([*losses, *[buffer.float().sum() for buffer in model.buffers()]])


@pytest.mark.parametrize("how", [{}, {"mode": "reduce-overhead"}], ids=str)
def test_a_module_is_trained(how):
    model = Net()
    plain, in_place, wrapped = copy.deepcopy(model), copy.deepcopy(model), copy.deepcopy(model)
    expected = trained(plain, plain)
    metrics.reset()
    in_place.compile(**how)
    assert torch.allclose(trained(in_place, in_place), expected, atol=1e-4)
    assert torch.allclose(trained(wrapped, torch.compile(wrapped, **how)), expected, atol=1e-4)
    assert metrics.generated_kernel_count > 0
    for trained_one in (in_place, wrapped):
        trained_one.eval(), plain.eval()
        assert torch.allclose(trained_one(X[None]), plain(X[None]), atol=1e-3)


def test_a_whole_training_step_with_autocast():
    models = [Net(), Net()]
    models[1].load_state_dict(models[0].state_dict())

    def stepped(model, compile):
        optimizer = torch.optim.SGD(model.parameters(), 1e-2)

        @compile
        def step(x, y):
            with torch.autocast("cpu", torch.bfloat16):
                loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return torch.stack([step(X[None].repeat(4, 1, 1), torch.arange(4)).detach().float() for _ in range(3)])

    assert torch.allclose(stepped(models[0], lambda fn: fn), stepped(models[1], torch.compile), atol=2e-2)


@pytest.mark.parametrize(
    "how", [{"mode": "no such mode"}, {"options": {"no_such_option": 1}}, {"mode": "default", "options": {"max_autotune": True}}], ids=str
)
def test_a_mistake_is_told_at_once(how):
    with pytest.raises(RuntimeError):
        torch.compile(f, **how)
