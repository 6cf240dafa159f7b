"""Published libraries as they are: what is in graphs and what runs eagerly, at the first call and at the second.

The libraries keep tables that their first calls fill: after an eager call, a capture meets them as they stay.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import fineline
from benchmarks.coverage import CountingBackend, eager_operators
from benchmarks.library_programs import PROGRAMS, Make


class Expected(NamedTuple):
    """What a program's first call is cut into, and what its second call adds."""

    graphs: int = 1
    breaks: int = 0
    # Operators that run eagerly at the first call, and at the second.
    eager: int = 0
    second: int = 0
    # Whether the second call is captured again, because the library counts its calls.
    again: bool = False


# The programs that are not one graph.
EXPECTED = {
    # How many classes there are depends on the numbers (bincount); the metric counts its updates.
    "torchmetrics_module": Expected(graphs=2, breaks=1, eager=1, again=True),
    "torchmetrics_function": Expected(graphs=2, breaks=1, eager=1, second=1),
    # Pyro asks after each site whether a number is nan, in hooks on gradients too.
    "pyro_loss": Expected(graphs=12, breaks=15, eager=11, second=20),
    # The kernel is an autograd function under an ``except``, whose forward is captured by itself; the code compares its inputs with earlier ones.
    "gpytorch_exact_likelihood": Expected(graphs=6, breaks=3, eager=3, second=3),
    # The object that holds the state of all takes over their `__dict__`.
    "accelerate_prepared": Expected(breaks=1),
}


def made(make: Make) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    torch.manual_seed(0)
    return make()


def called(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    torch.manual_seed(1)
    return fn(*args)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_first_and_second_call(name: str) -> None:
    make, expected = PROGRAMS[name].make, EXPECTED.get(name, Expected())
    for module in PROGRAMS[name].needs:
        pytest.importorskip(module, exc_type=ImportError)
    fn, args = made(make)
    # What each call gives: some count their calls.
    eager = [called(fn, args), called(fn, args), called(fn, args)]
    fn, args = made(make)
    called(fn, args)
    backend = CountingBackend()
    compiled = fineline.compile(fn, backend=backend)
    first = called(compiled, args)
    [region] = [region for region in fineline.api.regions() if region.fn is fn]
    breaks = [event for event in region.reports.events if event.kind == "break"]
    operators = sum([node.op.startswith("call") for gm in region.graphs.graphs for node in gm.graph.nodes])
    graphs, backend.counted.captured = backend.counted.graphs, 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        second = called(compiled, args)
    torch.testing.assert_close((first, second), (eager[1], eager[2]), rtol=0, atol=0)
    assert (graphs, len(breaks), backend.counted.graphs > graphs) == (expected.graphs, expected.breaks, expected.again)
    fn, args = made(make)
    called(fn, args)
    # The first call makes its operators one by one.
    ran = fineline.explain(fn)(*args).ran
    assert ran["eager"] == expected.eager and ran["captured"] > ran["eager"]
    if not expected.again:
        assert eager_operators(profile.events()) == expected.second and backend.counted.captured >= operators
        assert backend.counted.captured == operators or expected.breaks


COLD = """
import torch
import fineline
import einops, einx

x = torch.randn(2, 8, 5)


def by_einops(x):
    return einops.reduce(einops.rearrange(x, "b (h d) n -> b h n d", h=2), "b h n d -> b h d", "mean")


def by_einx(x):
    return einx.mean("b h [n] d", einx.id("b (h d) n -> b h n d", x, h=2))


for fn in (by_einops, by_einx):
    graphs, counts = [], []

    def backend(gm, inputs):
        graphs.append(sum(n.op.startswith("call") for n in gm.graph.nodes))
        return gm.forward

    compiled = fineline.compile(fn, backend=backend)
    for k in range(4):
        found = compiled(x)
        counts.append(list(graphs))
        assert torch.equal(found, fn(x))
    region, = [region for region in fineline.api.regions() if region.fn is fn]
    print(counts, [e.id for e in region.reports.events if e.kind in ("break", "eager", "recompile")])
"""


def test_tables_that_the_first_call_fills() -> None:
    """In a new process. They cost no graph break, and no capture after the first.

    A table in an opaque call, as that of einx, makes the first call run eagerly; it is captured after that.
    """
    pytest.importorskip("einops")
    pytest.importorskip("einx")
    run = subprocess.run([sys.executable, "-c", COLD], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines() == ["[[4], [4], [4], [4]] []", "[[2], [2], [2], [2]] ['FL454']"]
