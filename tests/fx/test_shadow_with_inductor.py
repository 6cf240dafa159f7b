"""The option ``shadow`` with Inductor: it reports nothing where Inductor is right, and the operator where it is not, forward or backward."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._inductor.custom_graph_pass import CustomGraphPass

import fineline
from fineline.report.events import Event

COMPARED = ("shadow", "unshadowed")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.norm(self.lin(x)) * 3) + x.softmax(-1)


def attention(q: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(0, 1).flatten(-2).sum(-1)


def writes(x: Tensor) -> Tensor:
    y = x.exp()
    x.mul_(2).add_(y.mean(0, keepdim=True))
    return (x - y).log1p().cumsum(-1)


def in_bfloat16(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.mT
    return (y.float().sin() + y).sum(-1)


def compared(compiled: Callable) -> list[Event]:
    return [event for event in fineline.report(compiled).events if event.kind in COMPARED]


def test_right_results(caplog: pytest.LogCaptureFixture) -> None:
    """Sizes vary, and so the second graph has symbols."""
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, "fineline"):
        for fn, sizes in ((attention, (2, 4, 8)), (writes, (4, 8)), (in_bfloat16, (4, 8))):
            compiled = fineline.compile(fn, options={"shadow": 1.0})
            for more in (0, 0, 1, 2):
                x = torch.rand(sizes[0] + more, *sizes[1:])
                y = x.clone()
                torch.testing.assert_close((compiled(x), x), (fn(y), y), rtol=1e-3, atol=1e-4)
            assert compared(compiled) == [], fn
        net, x = nn.Sequential(Block(), Block()), torch.randn(4, 8)
        same = copy.deepcopy(net)
        compiled = fineline.compile(net, options={"shadow": 1.0})
        for _ in range(3):
            compiled(x).square().sum().backward()
            same(x).square().sum().backward()
        torch.testing.assert_close([p.grad for p in net.parameters()], [p.grad for p in same.parameters()], rtol=1e-3, atol=1e-4)
        assert compared(compiled) == []
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


class Wrong(CustomGraphPass):
    """A pass that takes one operator for another."""

    def __init__(self, of: torch._ops.OpOverload, by: torch._ops.OpOverload) -> None:
        self._of, self._by = of, by

    def __call__(self, graph: torch.fx.Graph) -> None:
        for node in graph.find_nodes(op="call_function", target=self._of):
            node.target = self._by

    def uuid(self) -> str:
        return f"{self._of} as {self._by}"


@pytest.mark.parametrize("trains", [False, True])
def test_wrong_results(trains: bool, caplog: pytest.LogCaptureFixture) -> None:
    aten = torch.ops.aten

    def step(x: Tensor) -> Tensor:
        y = x.exp() + 1
        return y * x.cosh().relu()

    # The gradient of `cosh` has the only `sinh`.
    wrong = Wrong(aten.sinh.default, aten.asinh.default) if trains else Wrong(aten.cosh.default, aten.cos.default)
    compiled = fineline.compile(step, options={"shadow": 1.0, "post_grad_custom_post_pass": wrong})
    x = torch.linspace(1, 2, 8, requires_grad=trains)
    with caplog.at_level(logging.WARNING, "fineline"):
        for _ in range(2):
            y = compiled(x)
            if trains:
                y.sum().backward()
    [event] = compared(compiled)
    assert event.id == "FL010" and event.reason.startswith("the gradient of l_x_: " if trains else "result 0: "), event
    assert [record.name for record in caplog.records if record.levelno == logging.WARNING] == ["fineline"]
