"""Graphs that fail where they did not at their capture, in blocks and under handlers: these are left, or run, as in eager code."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import fineline
from tests.oracle import Program, Table, check, t

table = Table()

with forward_ad.dual_level():
    # PyTorch loads decompositions at their first use, and warns of what they are made with.
    forward_ad.make_dual(torch.ones(2), torch.ones(2))[torch.tensor([0])] * 2


def without_gradients(x, i, given):
    with torch.no_grad():
        y = given(x)[i]
    return y * 2


def with_autocast(x, i, given):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = given(x)
        return y[i] @ y[i].t()


def in_inference_mode(x, i, given):
    with torch.inference_mode():
        return given(x)[i] + 1


def under_vmap(x, i, given):
    y = given(x)
    return torch.func.vmap(lambda v: (y[i] * v).sum())(x)


def under_grad(x, i, given):
    y = given(x)
    return torch.func.grad(lambda v: (v[i] * 2).sum())(y)


def at_a_dual_level(x, i, given):
    y = given(x)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(y, y)
        return forward_ad.unpack_dual(dual[i] * 2).tangent


def with_random_state_apart(x, i, given):
    with torch.random.fork_rng():
        torch.manual_seed(3)
        return given(x)[i] * torch.rand(2, 1)


def with_another_default(x, i, given):
    torch.set_default_dtype(torch.float64)
    try:
        return given(x)[i] * 2 + torch.ones(1)
    finally:
        torch.set_default_dtype(torch.float32)


def that_is_handled(x, i, given):
    try:
        return given(x)[i] * 2
    except IndexError as e:
        return x + 1, str(e)


def that_a_caller_handles(x, i, given):
    try:
        return inner(x, i, given)
    except IndexError:
        return x + 1


def inner(x, i, given):
    return given(x)[i] * 2


BLOCKS = (
    without_gradients, with_autocast, in_inference_mode, under_vmap, under_grad, at_a_dual_level, with_random_state_apart,
    with_another_default, that_is_handled, that_a_caller_handles,
)  # fmt: skip


def args(place: int) -> tuple[torch.Tensor, torch.Tensor]:
    return t(place, 4, 4), torch.tensor([0, 9 if place in (2, 4) else 1])


def register(block: Callable, kind: str) -> None:
    def make() -> Any:
        seen = torch.zeros(4)

        def given(x):
            if kind == "written":
                seen.add_(1)
            return torch.nn.functional.dropout(x, 0.5) if kind == "random" else x * 2

        return lambda x, i: block(x, i, given), seen

    make.__name__ = f"{block.__name__}_{kind}"
    table.program(calls=6, args=args, breaks=True, repeats=True, recompiles=(2, 4), backward=False)(make)


for block in BLOCKS:
    for kind in ("plain", "written", "random"):
        register(block, kind)


@table.snippet(args=lambda place: (t(place), t(place + 1)), breaks=True, repeats=True, backward=False)
def where_only_the_run_sees_it(x, y):
    """Of types that do not fit a fake says nothing."""
    for _ in range(2):
        try:
            total = torch.zeros(4)
            found = (x[0] > -9).nonzero().squeeze(-1)
            return total.index_add_(0, found, y[0][found].bfloat16())
        except RuntimeError as e:
            text = str(e)
    return x * 2, text


class Noted:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, *error):
        self.log.append("out")


@table.program(calls=6, args=args, breaks=True, repeats=True, recompiles=(2, 4), backward=False)
def in_blocks_entered_before_a_graph_break():
    log, large = [], torch.zeros(2**15)

    def fn(x, i):
        with Noted(log), torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ x
            fineline.graph_break()
            y = y[i] @ x
            # More than is kept to be put back.
            large.add_(1)
            return y

    return fn, (log, large)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_failing_graphs(program: Program, twin: str) -> None:
    check(program, twin)


@torch.library.custom_op("failing::interrupted", mutates_args=())
def interrupted(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 10:
        raise KeyboardInterrupt
    return x.clone()


interrupted.register_fake(torch.empty_like)


@pytest.mark.parametrize("draws", [False, True])
def test_an_interrupt_leaves_the_blocks(draws: bool) -> None:
    def fn(x):
        with torch.no_grad(), torch.autocast("cpu"):
            y = torch.nn.functional.dropout(x) if draws else x
            return interrupted(y * 0 + x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    with pytest.raises(KeyboardInterrupt):
        compiled(torch.full((2,), 50.0))
    assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(compiled(torch.ones(2)), fn(torch.ones(2)))


def test_an_interrupt_behind_a_graph_break_leaves_the_blocks() -> None:
    log: list[Any] = []

    def fn(x):
        with Noted(log), torch.no_grad(), torch.autocast("cpu"):
            y = x * 2
            fineline.graph_break()
            z = interrupted(y)
            fineline.graph_break()
            return z + 1

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            compiled(torch.full((2,), 50.0))
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0)) and log == ["in", "out"] * 4


def test_no_handler_takes_what_comes_from_a_graph_that_cannot_run_again() -> None:
    """It was raised somewhere behind the graph break: what the code has done since is not known."""
    log: list[Any] = []
    large = torch.zeros(2**15)

    def fn(x):
        for n in range(2):
            try:
                with Noted(log):
                    fineline.graph_break()
                    large.add_(1)
                    x = bounded(x * 4)
            except:  # noqa: E722
                return n
        return x

    compiled = fineline.compile(fn, backend="eager")
    for _ in range(2):
        compiled(torch.full((2,), 0.1))
    with pytest.raises(ValueError, match="too much"):
        compiled(torch.full((2,), 1.0))
    assert log == ["in", "out"] * (len(log) // 2)


@pytest.mark.parametrize("behind", [False, True])
def test_a_failed_call_keeps_nothing(behind: bool) -> None:
    large = torch.zeros(2**15)

    def fn(x):
        with torch.no_grad(), torch.autocast("cpu"):
            if behind:
                fineline.graph_break()
            large.add_(1)
            return bounded(x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    x = torch.full((2,), 50.0)
    alive = weakref.ref(x)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="too much"):
            compiled(x)
        del x
        assert alive() is None
    finally:
        gc.enable()


@torch.library.custom_op("failing::bounded", mutates_args=())
def bounded(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 10:
        raise ValueError("too much")
    return x.clone()


bounded.register_fake(torch.empty_like)


def test_the_error_tells_where_it_was_raised() -> None:
    def fn(x):
        with torch.autocast("cpu"):
            return bounded(x * 2) + x.sin()

    compiled = fineline.compile(fn, backend="eager")
    compiled(torch.ones(2))
    with pytest.raises(ValueError, match="too much") as caught:
        compiled(torch.full((2,), 50.0))
    assert "bounded" in [frame.name for frame in caught.traceback] and not torch.is_autocast_enabled("cpu")
