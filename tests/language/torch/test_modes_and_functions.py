"""Function modes and the operators and calls that run functions: branches, loops, checkpoints, autograd functions, opaque functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.experimental import control_flow
from torch import Tensor
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import fineline
from tests.language.torch.higher_order import check_afresh
from tests.language.torch.test_modes import Twice, Watching
from tests.language.torch.test_modes_around_calls import Counting, Scaling, called
from tests.oracle import Program, Table, t

table = Table()
FULL = {"fullgraph": True}
pytestmark = pytest.mark.usefixtures("derivatives_told")


class Passing(TorchFunctionMode):
    """Changes nothing, and notes nothing."""

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return fn(*args, **(kwargs or {}))


class Factor(TorchFunctionMode):
    """Gives ``torch.sin`` another result, and has no effect."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return torch.cos(*args) * self.factor if fn is torch.sin else fn(*args, **(kwargs or {}))


@pytest.fixture(scope="module", autouse=True)
def _compiled_before() -> None:
    """PyTorch compiles a branch in eager code too; what a mode sees the first time only, it has seen."""
    with Watching(), torch.device("cpu"):
        torch.cond(torch.ones(()) > 0, torch.sin, torch.cos, (torch.ones(2),))


def alternating(place: int) -> tuple[Tensor]:
    return (t(place) + (9 if place % 2 else -9),)


@table.snippet(args=alternating, recompiles=(1,), options=FULL)
def branches_under_a_mode(x):
    with Watching() as mode:
        y = torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: torch.cos(x), (x,))
    return y + 1, mode.seen


@table.snippet(args=alternating, options=FULL)
def branches_under_several_modes(x):
    with Watching() as outer, torch.device("cpu"), Scaling(2.0), Watching() as inner:
        y = torch.cond(torch.sin(x).sum() > 0, lambda x: {"a": [torch.sin(x) + torch.ones(4)]}, lambda x: {"a": [torch.cos(x)]}, (x,))
    return y, outer.seen, inner.seen


@table.snippet(options=FULL)
def known_branches_under_a_mode(x):
    with Watching() as mode:
        y = torch.cond(x.shape[0] > 2, lambda x: torch.sin(x), lambda x: torch.cos(x), (x,))
    return y, mode.seen


@table.snippet(breaks=True, recompiles=(1,), min_graphs=0)
def branches_that_no_graph_holds_under_a_mode(x):
    def branch(x):
        print("a")
        return torch.sin(x)

    with Watching() as mode:
        try:
            return torch.cond("a", branch, branch, (x,)), mode.seen
        except RuntimeError as e:
            text = str(e)
        try:
            return torch.cond(x > 0, torch.sin, torch.cos, (x,)), mode.seen
        except RuntimeError as e:
            return text, str(e)[:20], mode.seen


@table.snippet(options=FULL)
def loops_under_a_mode(x):
    with Watching() as mode:
        a = while_loop(lambda x: x.sum() < 10, lambda x: (torch.exp(x) + 1,), (x,))
        b = control_flow.map(lambda row, y: torch.sin(row) + y, x, x[0] * 2)
        c = scan(lambda carry, row: (carry + row, torch.sin(row)), x[0], x)
        d = associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")
    return a, b, c, d, mode.seen


@table.snippet(grad=True, options=FULL)
def checkpoints_under_a_mode_without_effects(x):
    with Passing():
        y = checkpoint(lambda x: torch.sin(x) * 2 + torch.ones(4), x, use_reentrant=False)
    with torch.device("cpu"):
        z = checkpoint(lambda x: torch.sin(x) * torch.ones(4), x, use_reentrant=False)
    with torch.device("cpu"), Passing(), torch.device("cpu"), Passing():
        z = z + checkpoint(lambda x: (2 - torch.sin(x)) ** 2, y, use_reentrant=False)
    return y, z


@table.snippet(grad=True, breaks=True, recompiles=(1,))
def checkpoints_under_a_mode_that_changes_them(x):
    x = x * 2
    with Scaling(2.0):
        y = checkpoint(lambda x: torch.sin(x) * 2, x, use_reentrant=False)
    return y + 1


@table.snippet(grad=True, breaks=True, recompiles=(1,), min_graphs=0)
def checkpoints_without_operators_under_a_mode(x):
    with Watching() as mode:
        y = checkpoint(lambda x: x, [x], use_reentrant=False)
    return y[0] * 2, mode.seen


@table.snippet(grad=True, options=FULL)
def modes_within_checkpoints(x):
    def work(x):
        with Watching() as mode, torch.device("cpu"):
            return torch.sin(x) + torch.ones(4), len(mode.seen)

    y, n = checkpoint(work, x, use_reentrant=False)
    return y * n


class Settings(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, n: int) -> Tensor:
        return torch.sin(x) * n

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.n = inputs
        ctx.save_for_backward(torch.sin(x))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (y,) = ctx.saved_tensors
        return torch.sin(g) * y * ctx.n, None


@table.snippet(grad=True, options=FULL)
def functions_under_a_mode_without_effects(x):
    with Scaling(2.0), torch.device("cpu"):
        y = Twice.apply(x)
        with Passing():
            z = Settings.apply(y, 3)
    return y, z, torch.is_grad_enabled()


@table.snippet(recompiles=(1,), options=FULL)
def functions_without_gradients_under_a_mode(x):
    with Watching() as mode:
        y = Settings.apply(Twice.apply(x), 3)
    with mode, torch.no_grad():
        y = Twice.apply(y)
    return y, mode.seen, torch.is_grad_enabled()


@table.snippet(grad=True, breaks=True, recompiles=(1,), min_graphs=0)
def functions_within_modes_that_count(x):
    with Counting() as mode:
        y = Twice.apply(x * 2)
    return y, mode.calls




# -- modes around the call -----------------------------------------------------------------------------------------------------------
def program(name: str, body: Callable, choose: Callable[[], Callable[[int], list]], **marks: Any) -> None:
    """Registers a program that calls ``body``, compiled, under the modes that what ``choose`` returns gives for each call."""

    def make(compile: Any) -> Any:
        return called(body, choose())(compile)

    make.__name__ = name
    table.program(raw=True, args=lambda place: (place, t(place, grad=True)), **marks)(make)


def _branch(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: torch.sin(x), lambda x: torch.cos(x), (x,)) + 1


def _checkpoint(x: Any) -> Any:
    return checkpoint(lambda x: torch.sin(x) * 2, x, use_reentrant=False) + 1


def _function(x: Any) -> Any:
    return Settings.apply(Twice.apply(x), 2) + 1


@fineline.allow_in_graph
def _allowed(x: Any) -> Any:
    return torch.sin(x) + 1


def counting() -> Callable[[int], list]:
    mode = Counting()
    return lambda place: [mode]


for name, body in (("branches", _branch), ("checkpoints", _checkpoint), ("functions", _function), ("opaque_functions", _allowed)):
    program(f"{name}_in_a_mode_now_and_then", body, lambda: lambda place: [Passing()] * (place % 2), recompiles=(1,), calls=4)
    program(f"{name}_in_other_modes", body, lambda: lambda place: [Scaling(2.0) if place % 2 else Passing()], recompiles=(1,), breaks=True, calls=4)
    program(f"{name}_in_a_mode_that_changes", body, lambda: lambda place: [Scaling(2.0 + place // 2)], recompiles=(2,), breaks=True, calls=4, min_graphs=0)
    program(f"{name}_in_a_mode_with_a_tensor", body, lambda: lambda place: [Scaling(2.0, t(place + 5))], recompiles=(1,), breaks=True, min_graphs=0)
    program(f"{name}_in_a_mode_that_notes", body, lambda: lambda place: [Passing(), Watching()], recompiles=(1,), breaks=True, min_graphs=0)
    program(f"{name}_in_a_mode_that_counts", body, counting, recompiles=(1, 2), breaks=True, min_graphs=0)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check_afresh(program, twin)
