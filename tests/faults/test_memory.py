"""What is dropped goes away: at once, without a collection; and a program keeps no activation."""

from __future__ import annotations

import gc
import linecache
import subprocess
import sys
import weakref
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import fineline

X = torch.ones(4, 4)


@pytest.fixture(autouse=True)
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096


def make(kind):
    """A callable over fresh tensors, with weak references to what must die with it."""
    if kind == "module":
        m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
        c = fineline.compile(m, backend="eager")
        return c, [weakref.ref(m), weakref.ref(m[0].weight), weakref.ref(c)]
    w = torch.randn(4, 4)

    if kind == "closure":
        def f(x):
            return (x @ w).relu() + 1
    elif kind == "border":
        def f(x):
            y = x @ w
            if y.sum() > 1e9:
                return y
            fineline.graph_break()
            return [z + 1 for z in (y, w)][0]
    elif kind == "generator":
        def f(x):
            def gen():
                for i in range(3):
                    yield x @ w + i

            return sum(gen())
    elif kind == "raises":
        def f(x):
            y = x @ w
            raise ValueError("bad")
    elif kind == "handled":
        def f(x):
            try:
                raise ValueError("bad")
            except ValueError as e:
                return x @ w + len(str(e))
    elif kind == "unrebuildable":
        def f(x):
            y = x @ w
            return y, iter(zip([1], map(len, ["a"])))
    else:
        @fineline.disable(recursive=False)
        def middle(x):
            return inner(x)

        def inner(x):
            return x @ w

        def f(x):
            return middle(x + 1)

    c = fineline.compile(f, backend="eager")
    return c, [weakref.ref(w), weakref.ref(f), weakref.ref(c)]


KINDS = ["module", "closure", "border", "generator", "raises", "handled", "unrebuildable", "frames"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("calls", [1, 3])
def test_deleting_frees_without_a_collection(kind, calls) -> None:
    c, refs = make(kind)
    for _ in range(calls):
        try:
            c(X)
        except ValueError:
            pass
    del c
    assert [r() for r in refs] == [None] * len(refs)


def test_a_recompiled_region_is_freed_too() -> None:
    # The first environment of a process imports modules of PyTorch, whose frames wait for a collection.
    ShapeEnv()
    m = nn.Linear(4, 4)
    c = fineline.compile(m, backend="eager")
    for n in range(1, 12):
        c(torch.ones(n, 4))
    ref = weakref.ref(m)
    del m, c
    assert ref() is None


@pytest.mark.parametrize("kind", ["module", "closure", "border", "raises"])
def test_many_regions_leave_memory_flat(kind) -> None:
    def round_(n):
        for _ in range(n):
            c, _refs = make(kind)
            for _ in range(2):
                try:
                    c(X)
                except ValueError:
                    pass

    # FX graphs are cycles of nodes, and each GraphModule has a class of its own: those wait for a collection.
    round_(100)
    gc.collect()
    lines, grown = len(linecache.cache), list[int]()
    # The allocator may grow its arenas once (6.6 MB after other tests); a leak grows in each round.
    while not grown or (grown[-1] >= 6 << 20 and len(grown) < 3):
        before = resident()
        round_(300)
        gc.collect()
        grown.append(resident() - before)
    assert len(linecache.cache) <= lines
    assert grown[-1] < 6 << 20, f"{[size >> 10 for size in grown]} KiB in 300 regions each"


@pytest.mark.slow
def test_two_thousand_regions() -> None:
    def round_(n):
        for _ in range(n):
            m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
            c = fineline.compile(m, backend="eager")
            c(X)

    gc.enable()
    round_(200)
    gc.collect()
    before = resident()
    round_(2000)
    gc.collect()
    grown = resident() - before
    assert grown < 8 << 20, f"{grown >> 10} KiB"


class Watching:
    """Remembers, weakly, the results of a function that it wraps."""

    def __init__(self, monkeypatch):
        self.seen = []
        from fineline.tensor_ops.tensors import TensorOps

        keep = TensorOps.keep

        def watched(ops, interp, fn, op, target, args, kwargs, result, untyped):
            if isinstance(result, torch.Tensor):
                self.seen.append(weakref.ref(result))
            return keep(ops, interp, fn, op, target, args, kwargs, result, untyped)

        monkeypatch.setattr(TensorOps, "keep", watched)

    def alive(self):
        return sum(r() is not None for r in self.seen)


@pytest.mark.parametrize("grad", [False, True])
def test_no_activation_outlives_the_capture(grad, monkeypatch) -> None:
    watching = Watching(monkeypatch)
    m = nn.Sequential(*[nn.Linear(4, 4) for _ in range(5)])
    c = fineline.compile(m, backend="eager")
    with torch.set_grad_enabled(grad):
        out = c(X)
    # Autograd keeps what the backward pass reads.
    assert len(watching.seen) == 5 and (grad or watching.alive() == 1)
    del out
    assert watching.alive() == 0


def test_activations_die_while_the_capture_runs(monkeypatch) -> None:
    watching = Watching(monkeypatch)
    most = []

    def f(x):
        for _ in range(20):
            x = (x * 2).sin()
            x = x + 1
        return x

    keep = fineline.tensor_ops.tensors.TensorOps.keep

    def counting(*args):
        most.append(watching.alive())
        return keep(*args)

    monkeypatch.setattr(fineline.tensor_ops.tensors.TensorOps, "keep", counting)
    c = fineline.compile(f, backend="eager")
    with torch.no_grad():
        c(X)
    assert max(most) <= 4


def test_a_border_keeps_nothing_either(monkeypatch) -> None:
    watching = Watching(monkeypatch)

    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        z = [y * i for i in range(3)]
        fineline.graph_break()
        return z[0]

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        c(X)
    assert watching.alive() == 0


def test_arguments_are_not_held() -> None:
    c = fineline.compile(lambda x, box: x + box[0], backend="eager")
    x, y = torch.ones(3), torch.ones(3)
    c(x, [y])
    c(x, [y])
    refs = [weakref.ref(x), weakref.ref(y)]
    del x, y
    assert [r() for r in refs] == [None, None]


@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}], ids=str)
def test_the_collector_works_where_code_runs_by_itself(options: dict[str, Any]) -> None:
    """It rests while a capture runs; code that is not captured finds it as it was, and may set it."""
    seen = []

    @fineline.disable
    def eagerly() -> None:
        seen.append(gc.get_threshold())

    def fn(x: torch.Tensor, fail: bool) -> torch.Tensor:
        seen.append(gc.get_threshold())
        eagerly()
        y = x + 1
        gc.set_threshold(800, 11, 11)
        seen.append(gc.get_threshold())
        if fail:
            raise ValueError
        return y

    before = gc.get_threshold()
    try:
        compiled = fineline.compile(fn, backend="eager", options=options)
        for fail in (False, True, False):
            gc.set_threshold(700, 10, 10)
            with pytest.raises(ValueError) if fail else nullcontext():
                compiled(torch.ones(2), fail)
            assert seen == [(700, 10, 10), (700, 10, 10), (800, 11, 11)] and gc.get_threshold() == (800, 11, 11)
            seen.clear()
    finally:
        gc.set_threshold(*before)


def test_symbolic_captures_leave_no_environment() -> None:
    """PyTorch's caches would hold each one."""

    def once() -> None:
        def fn(x):
            n = 0
            for i in range(2):
                n += (x + i).sum().item()
            return x * n + x.shape[0]

        compiled = fineline.compile(fn, backend="eager", dynamic=True)
        compiled(torch.ones(2))
        compiled(torch.ones(3))

    once()
    gc.collect()
    before = sum([isinstance(o, ShapeEnv) for o in gc.get_objects()])
    for _ in range(3):
        once()
    gc.collect()
    assert sum([isinstance(o, ShapeEnv) for o in gc.get_objects()]) <= before


@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("shape", [(7, 7), (2, 8)], ids=["raises", "fits"])
def test_sizes_given_to_an_operator_hold_nothing(shape: tuple[int, int], options: dict[str, Any]) -> None:
    def fn(x):
        try:
            x = x.reshape(*shape)
        except RuntimeError:
            pass
        return x * 2

    compiled = fineline.compile(fn, backend="eager", options=options)
    x = torch.ones(4, 4)
    compiled(x)
    ref = weakref.ref(x)
    del x
    assert ref() is None


FIRST = """
import gc, sys, weakref
import torch
import fineline

gc.disable()
model = torch.nn.Linear(4, 4)
compiled = fineline.compile(model, backend=sys.argv[1], dynamic=sys.argv[2] == "dynamic")
compiled(torch.ones(2, 4)).sum().backward()
gone = weakref.ref(model)
del model, compiled
assert gone() is None
"""


@pytest.mark.parametrize("how", [("eager", "dynamic"), ("inductor", "static")], ids=" ".join)
def test_the_first_capture_of_a_process_keeps_nothing(how: tuple[str, str]) -> None:
    """PyTorch imports parts of itself there, whose frames stay until a collection."""
    subprocess.run([sys.executable, "-c", FIRST, *how], check=True, timeout=240)
