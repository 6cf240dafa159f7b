"""How many programs a region makes: a call that is captured anew counts once, behind however many graph breaks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import t

WAYS = "sin cos sigmoid tanh sinh cosh asinh atan erf relu exp square".split()


class Iterations:
    """Each iteration is another program, which makes each a place of its own from the second call on."""

    ways = WAYS

    def __call__(self, x: Tensor) -> Tensor:
        for way in self.ways:
            fineline.graph_break()
            x = getattr(x, way)().tan().neg().abs().sin()
        return x


def graphs_of(monkeypatch, calls: list[tuple[list[str], Tensor]]) -> tuple[list[int], list[Any]]:
    """-> how many graphs there are behind each call, and what has been told of limits."""
    limits, graphs, made, iterations = [], [], [], Iterations()
    monkeypatch.setattr(LISTENERS, "all", (lambda event: limits.append(event.reason) if event.kind == "limit" else None,))
    compiled = fineline.compile(iterations, backend=lambda gm, inputs: (graphs.append(gm), gm.forward)[1])
    for ways, x in calls:
        iterations.ways = ways
        torch.testing.assert_close(compiled(x), iterations(x))
        made.append(len(graphs))
    return made, [text for text in limits if "iterations of a loop" not in text]


def test_a_call_that_is_captured_anew_counts_once(monkeypatch) -> None:
    other = [*WAYS[6:], *WAYS[:6]]
    made, limits = graphs_of(monkeypatch, [(WAYS, t(0)), (WAYS, t(1)), (WAYS, t(1)), (other, t(2)), (other, t(2).double())])
    assert made[3] < made[4] and not limits


def test_calls_that_end_eagerly_again_and_again_begin_eagerly(monkeypatch) -> None:
    """Behind a graph break, what no program fits goes on in the interpreter."""
    told, runs, ran, state = [], [], [], {"name": ""}
    monkeypatch.setattr(LISTENERS, "all", (lambda event: told.append(event.reason) if event.id == "FL104" else None,))

    def fn(x):
        x = x.sin().cos().tan().exp().sigmoid()
        fineline.graph_break()
        for n in range(300):
            x = x + len(f"{state['name']}{n}")
        return x

    def backend(gm, inputs):
        return lambda *args: (runs.append(1), gm(*args))[1]

    compiled = fineline.compile(fn, backend=backend)
    for n in range(40):
        state["name"] = f"name {n}"
        assert torch.equal(compiled(t(1)), fn(t(1)))
        ran.append(len(runs))
    assert told[-1].endswith("eager from their start now")
    # Nor is a graph run before the break.
    assert ran[-1] == ran[-10]


def test_the_limit_holds_behind_graph_breaks_too(monkeypatch) -> None:
    calls = [([*WAYS[n:], *WAYS[:n]], t(n)) for n in range(12)]
    made, limits = graphs_of(monkeypatch, calls)
    assert limits and made[-1] == made[-2]
