"""The option ``shadow``: which calls run eagerly as well, what is reported, and that the call itself is the compiled one."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import fineline
from fineline.backends.aot_eager import aot_eager
from fineline.report.differences import TOLERANCES, Noise, first_difference
from fineline.report.events import Event
from tests.bisection import backends


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.norm = nn.Linear(8, 8), nn.BatchNorm1d(8)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.lin(x))
        return F.gelu(y * 3)


class Eager:
    """A backend that counts the runs of its graphs, and adds an error from a run on."""

    __name__ = "counting"

    def __init__(self, wrong_from: int = 10**9, error: float = 1.0) -> None:
        self.runs, self.wrong_from, self.error = 0, wrong_from, error

    def __call__(self, gm: torch.fx.GraphModule, inputs: list) -> Callable:
        def run(*args: Any) -> Any:
            self.runs += 1
            wrong = self.runs >= self.wrong_from
            return tuple([out + self.error if wrong else out for out in gm.forward(*args)])

        return run


def shadows(compiled: Callable) -> list[Event]:
    return [event for event in fineline.report(compiled).events if event.kind == "shadow"]


def test_which_calls() -> None:
    """A share of them, the same ones each time: no random number decides."""
    runs: list[int] = []
    for share, expected in ((0.25, {1, 5, 9}), (0.3, {1, 5, 8, 11}), (1.0, set(range(1, 13))), (0.0, set())):
        for call in range(1, 13):
            backend = Eager(wrong_from=call)
            step = fineline.compile(lambda x: x.sin() + 1, backend=backend, options={"shadow": share}, isolate_recompiles=True)
            x = torch.ones(3)
            step(x)
            for _ in range(call):
                step(x)
            # It is wrong in the last call alone.
            if shadows(step):
                runs.append(call)
        assert set(runs) == expected, share
        runs.clear()


def test_the_first_difference_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """With its size, module and line; the results stay the compiled ones."""
    net, x = nn.Sequential(Block(), Block()).eval(), torch.randn(4, 8)
    fast = fineline.compile(net, backend=backends.tanh_gelu, options={"shadow": 0.5})
    plain = fineline.compile(net, backend=backends.tanh_gelu)
    for _ in range(6):
        results = fast(x), plain(x)
    [event] = shadows(fast)
    line = Block.forward.__code__.co_firstlineno + 2
    assert (event.id, event.file, event.line) == ("FL010", __file__, line)
    assert event.reason.startswith("result 0: the largest difference is ") and event.reason.endswith(", in module self.1 (Block)")
    assert torch.equal(*results) and not torch.allclose(results[0], net(x), atol=1e-6)
    warnings = [record.getMessage() for record in caplog.records if "differs from eager code" in record.getMessage()]
    assert len(warnings) == 1 and f"{__file__}:{line}" in warnings[0] and "in module self.1 (Block)" in warnings[0]
    assert "compared with eager code:\n    FL010" in str(fineline.report(fast))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_effects_happen_once(backend: str) -> None:
    """On buffers, arguments, lists and random states; with gradients."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block, self.seen = Block(), list[int]()

        def forward(self, x: Tensor, out: Tensor) -> Tensor:
            self.seen.append(len(self.seen))
            y = F.dropout(self.block(x), 0.5)
            out.add_(y.detach())
            return y.sum()

    torch.manual_seed(0)
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    fast = fineline.compile(nets[1], backend=backend, options={"shadow": 1.0})
    left: list[list[Tensor]] = []
    for net, call in zip(nets, (nets[0], fast), strict=True):
        torch.manual_seed(1)
        out = torch.zeros(4, 8)
        for _ in range(4):
            call(torch.randn(4, 8), out).backward()
        left.append([out, *net.state_dict().values(), *[p.grad for p in net.parameters() if p.grad is not None], torch.rand(3)])
        assert net.seen == [0, 1, 2, 3]
    assert len(left[0]) == len(left[1]) and all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*left, strict=True))
    assert shadows(fast) == []


def test_writes_into_inputs_are_compared() -> None:
    def backend(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        def change(node: torch.fx.Node) -> None:
            if node.target == "add_":
                node.args = (node.args[0], 2)

        return backends.edited(gm, change)

    def step(x: Tensor, rows: Tensor) -> Tensor:
        rows.add_(1)
        return x * 2

    x = torch.zeros(2, 3)
    fast = fineline.compile(step, backend=backend, options={"shadow": 1.0})
    for _ in range(3):
        # Two inputs in one memory.
        fast(x[1], x[0])
    [event] = shadows(fast)
    assert event.id == "FL010" and event.reason.startswith("what the graph writes into an input: the largest difference is 1")
    assert x.tolist() == [[5.0] * 3, [0.0] * 3]


def test_what_is_not_compared() -> None:
    """Graphs with effects that are not on tensors, and other random numbers: each is told, once, and its effects happen once."""
    calls = []

    @torch.library.custom_op("fineline_shadow::counted", mutates_args=())
    def counted(x: Tensor) -> Tensor:
        calls.append(1)
        return x + 1

    fast = fineline.compile(lambda x: counted(x) * 2, backend="eager", options={"shadow": 1.0})
    for _ in range(4):
        fast(torch.ones(3))
    [event] = shadows(fast)
    assert event.id == "FL011" and "fineline_shadow.counted" in event.reason and len(calls) == 4

    def others(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        return lambda *args: (torch.rand(3) + torch.rand(3),)

    fast = fineline.compile(lambda x: x + torch.rand(3), backend=others, options={"shadow": 1.0})
    for _ in range(3):
        fast(torch.ones(3))
    [event] = shadows(fast)
    assert event.id == "FL011" and "draws random numbers" in event.reason


def test_eager_code_that_raises() -> None:
    fast = fineline.compile(lambda x, i: x[i], backend=lambda gm, inputs: lambda *args: (torch.ones(1),), options={"shadow": 1.0})
    fast(torch.ones(3), torch.tensor([2]))
    log = logging.getLogger("fineline")
    log.setLevel("ERROR")
    fast(torch.ones(3), torch.tensor([7]))
    log.setLevel("NOTSET")
    [event] = shadows(fast)
    assert event.id == "FL010" and "eager code raises" in event.reason and "out of bounds" in event.reason


@pytest.mark.parametrize("share, text", [(2, "from 0 to 1, not 2"), (-0.1, "from 0 to 1, not -0.1"), ("all", "takes a Real, not 'all'")])
def test_wrong_shares(share: Any, text: str) -> None:
    with pytest.raises(fineline.errors.BadArgument, match=text):
        fineline.compile(lambda x: x, options={"shadow": share})


def test_nothing_is_wrapped_without_it() -> None:
    """A program calls what the backend has returned."""

    def run(*args: Any) -> Any:
        return (args[0] + 1,)

    step = fineline.compile(lambda x: x + 1, backend=lambda gm, inputs: run)
    step(torch.ones(3))
    step(torch.ones(3))
    [program] = step._region.segments()
    assert program.run.constants["graph"] is run


class Tanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x)


def wrong_backward_of_aot(gm: torch.fx.GraphModule, inputs: list) -> Callable:
    """AOTAutograd's code, with a wrong gradient of tanh."""
    own = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
    for node in own.graph.nodes:
        if node.target is torch.tanh:
            node.target = backends._half
    own.recompile()
    return aot_eager(own, inputs)


def test_gradients_are_compared() -> None:
    """When the backward pass comes; it has no effect, and the gradients stay those of the compiled graph."""
    net = nn.Sequential(nn.Linear(8, 8), Tanh(), nn.BatchNorm1d(8), nn.Linear(8, 8))
    nets = [copy.deepcopy(net) for _ in range(2)]
    x = torch.randn(4, 8)
    fast = [fineline.compile(net, backend=wrong_backward_of_aot, options=options) for net, options in zip(nets, ({"shadow": 1.0}, None), strict=True)]
    for call in range(3):
        for one in fast:
            one(x).sin().sum().backward()
        # The first call captures.
        assert len(shadows(fast[0])) == (call > 0)
    [event] = shadows(fast[0])
    assert event.id == "FL010" and event.reason.startswith("the gradient of l_self_modules_0_parameters_weight_: the largest difference is ")
    assert event.reason.endswith(", in module self.0 (Linear)")
    for one, other in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert one.grad is not None and other.grad is not None and torch.equal(one.grad, other.grad)
    assert all(torch.equal(*pair) for pair in zip(nets[0].buffers(), nets[1].buffers(), strict=True))


def test_gradients_that_are_right() -> None:
    """Of parameters that are used twice, under autocast, with random numbers, and with steps between the calls."""
    lin, last, norm = nn.Linear(8, 8), nn.Linear(8, 8), nn.BatchNorm1d(8)

    def rounded(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        """AOTAutograd's code with another rounding of tanh. The gradient of a bias before a batch norm is nothing but rounding."""
        own = torch.fx.GraphModule(gm, copy.deepcopy(gm.graph))
        for node in own.graph.nodes:
            if node.target == "tanh":
                node.op, node.target = "call_function", lambda x: x.float().tanh()
        own.recompile()
        return aot_eager(own, inputs)

    def step(x: Tensor) -> Tensor:
        return F.dropout(norm(last(lin(lin(x).tanh()))), 0.5) * x

    opt = torch.optim.Adam([*lin.parameters(), *last.parameters()])
    fast = fineline.compile(step, backend=rounded, options={"shadow": 1.0})
    for low in (False, True):
        for _ in range(4):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=low):
                y = fast(torch.randn(4, 8).requires_grad_())
            y.sin().sum().backward()
            opt.step()
    assert shadows(fast) == []


def test_gradients_that_are_not_compared() -> None:
    """An event says so, once; the results still are."""

    def nodes(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        return lambda *args: tuple([out + (0 if len(calls) < 4 else 1) for out in gm.forward(*args)])

    calls: list[int] = []
    fast = fineline.compile(lambda x: (x * 2).sin(), backend=nodes, options={"shadow": 1.0})
    for _ in range(5):
        calls.append(1)
        fast(torch.ones(3).requires_grad_()).sum().backward()
    first, second = shadows(fast)
    assert first.id == "FL011" and "gradients of a graph are not compared" in first.reason and second.id == "FL010" and "result 0" in second.reason


def test_noise_of_less_exact_numbers() -> None:
    """A float32 gradient that is nothing but the roundings of bfloat16 operators may differ by these."""
    one, other = torch.tensor([1e-3]), torch.tensor([4e-3])
    assert first_difference(one, other, Noise(scale=1.0)) is not None
    assert first_difference(one, other, Noise(scale=1.0, tolerance=TOLERANCES[torch.bfloat16])) is None
    assert first_difference(one, torch.tensor([0.1]), Noise(scale=1.0, tolerance=TOLERANCES[torch.bfloat16])) is not None
