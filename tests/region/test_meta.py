"""Models that have no memory: on the device meta, and under a fake mode of the user's, however large they would be."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fineline


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.RMSNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + nn.functional.scaled_dot_product_attention(x, x, x)
        return y + self.down(nn.functional.silu(self.up(self.norm(y))))


def model(width: int, depth: int) -> nn.Module:
    return nn.Sequential(*[Block(width) for _ in range(depth)]).eval()


HOWS: list[dict[str, Any]] = [{}, {"fullgraph": True}, {"dynamic": True}, {"options": {"first_call": "compiled"}}]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("how", HOWS, ids=str)
def test_meta(how: dict[str, Any], backend: str) -> None:
    net = model(16, 2).to("meta")
    compiled = fineline.compile(net, backend=backend, **how)
    for size in (3, 5, 5):
        y = compiled(torch.empty(2, size, 16, device="meta"))
        assert y.shape == (2, size, 16) and y.device.type == "meta"
    compiled(torch.empty(2, 3, 16, device="meta")).sum().backward()
    assert all(p.grad is not None and p.grad.shape == p.shape for p in net.parameters())


def test_meta_is_explained() -> None:
    told = fineline.explain(model(16, 2).to("meta"))(torch.empty(2, 3, 16, device="meta"))
    assert len(told.graphs) == 1 and not told.breaks and told.guards


@pytest.mark.parametrize("how", [{}, {"fullgraph": True}], ids=str)
def test_numbers_on_meta_raise_as_they_do(how: dict[str, Any]) -> None:
    x = torch.empty(3, device="meta")
    with pytest.raises(RuntimeError) as expected:
        x.sum().item()
    with pytest.raises(RuntimeError) as caught:
        fineline.compile(lambda x: x * x.sum().item(), backend="eager", **how)(x)
    assert str(caught.value) == str(expected.value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("how", HOWS[:3], ids=str)
def test_under_a_fake_mode(how: dict[str, Any], backend: str) -> None:
    with FakeTensorMode():
        compiled = fineline.compile(nn.Linear(4, 3), backend=backend, **how)
        for _ in range(2):
            y = compiled(torch.randn(2, 4))
            assert type(y) is FakeTensor and y.shape == (2, 3)
    # Without the mode, and with memory: another program.
    real = nn.Linear(4, 3)
    assert torch.equal(fineline.compile(real, backend="eager")(torch.ones(2, 4)), real(torch.ones(2, 4)))


def test_one_region_in_and_out_of_a_fake_mode() -> None:
    compiled = fineline.compile(lambda x: x.sin() + torch.ones(3), backend="eager")
    for _ in range(2):
        with FakeTensorMode():
            assert type(compiled(torch.ones(3))) is FakeTensor
        assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))


def test_symbols_of_the_users() -> None:
    with FakeTensorMode(shape_env=ShapeEnv()):
        x = torch.ones(3)
        y = fineline.compile(lambda x: x * x.sum().item() + x[x > 0].shape[0], backend="eager")(x)
        assert type(y) is FakeTensor and y.shape == (3,)


@pytest.mark.parametrize("how", [{}, {"fullgraph": True}], ids=str)
def test_a_model_of_70_billion_parameters(how: dict[str, Any]) -> None:
    def told(device: str) -> Any:
        with torch.device(device):
            net, x = model(8192, 130), torch.empty(1, 128, 8192)
        assert sum(p.numel() for p in net.parameters()) > 69e9
        began = time.perf_counter()
        explanation = fineline.explain(net, **how)(x)
        assert time.perf_counter() - began < 60
        return explanation

    on_meta = told("meta")
    with FakeTensorMode():
        faked = told("cpu")
    for explanation in (on_meta, faked):
        assert len(explanation.graphs) == 1 and not explanation.breaks
