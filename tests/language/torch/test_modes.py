"""Modes of the user's that are entered in captured code: they see the operators that they see eagerly, and capture goes on behind them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.oracle import Program, Table, check, t

table = Table()


class Functions(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(fn.__name__)
        return fn(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(fn))
        return fn(*args, **(kwargs or {}))


MODES = {"functions": Functions, "dispatches": Dispatches}
BOTH = pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])


def around(kind: Any) -> Any:
    def fn(x):
        x = x.cos() * 2
        with (mode := kind()):
            y = torch.sin(x) + x.shape[0] + x.dim()
            y[0] = 1
        return y.exp() + 1, mode.seen

    return fn


def kept(kind: Any) -> Any:
    mode = kind()

    def fn(x):
        mode.seen.clear()
        with mode:
            y = torch.nn.functional.linear(x, torch.ones(2, 4)).relu_()
        return y.sum(), len(mode.seen)

    return fn


def within_each_other(kind: Any) -> Any:
    def fn(x):
        with (outer := kind()):
            y = x.cos()
            with (inner := kind()), torch.no_grad():
                y = y.sin()
            y = y * 2
        return y + 1, inner.seen, outer.seen

    return fn


def left_by_an_error(kind: Any) -> Any:
    def fn(x):
        mode = kind()
        try:
            with mode:
                y = x.sin()
                raise ValueError(y.shape[0])
        except ValueError as e:
            return x.cos() + 1, mode.seen, e.args

    return fn


def called(kind: Any) -> Any:
    def work(x):
        return x.sin() * 2

    def counted(x):
        with kind() as mode:
            return work(x), mode.seen

    def fn(x):
        y, seen = counted(work(x))
        return work(y), seen

    return fn


@BOTH
@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("make", [around, kept, within_each_other, left_by_an_error, called], ids=lambda make: make.__name__)
def test_modes(make: Any, kind: str, dynamic: bool | None, twin: str) -> None:
    table = Table()
    # What the list held before is guarded.
    again = (1,) if make is kept else ()
    table.program(breaks=True, recompiles=again, options={"dynamic": dynamic})(lambda: make(MODES[kind]))
    check(table.programs[0], twin)


@table.snippet(args=lambda place: (t(place, 4, 4),), breaks=True, recompiles=(1, 2))
def flops(x):
    x = x * 2
    with FlopCounterMode(display=False) as mode:
        y = x @ x
    return y + 1, mode.get_total_flops()


@table.snippet()
def a_device_is_no_mode_that_sees_operators(x):
    with torch.device("cpu"):
        y = torch.ones(3, 4)
    return x + y


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)
