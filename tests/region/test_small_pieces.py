"""What is too small for a graph of its own, behind a graph break that nobody asked for, runs operator by operator; the rest does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import fineline

SMALL, LARGE = torch.arange(12.0).view(3, 4), torch.arange(2.0**17)


def cut(before: int, between: int, behind: int, cutting: Callable = print) -> Callable:
    """A function of so many operators before, between and behind two graph breaks."""

    def fn(x):
        for _ in range(before):
            x = x.sin()
        cutting("here") if cutting is print else cutting()
        for _ in range(between):
            x = x.tan()
        cutting("here") if cutting is print else cutting()
        for _ in range(behind):
            x = x.cos()
        return x

    return fn


def graphs(fn: Callable, x: torch.Tensor) -> list[int]:
    """The operators of each graph, which are the same for one call as for three."""
    found: list[int] = []

    def backend(gm, examples):
        found.append(len([node for node in gm.graph.nodes if node.op.startswith("call")]))
        return gm.forward

    compiled = fineline.compile(fn, backend=backend)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    for k in range(3):
        a, b = compiled(ours + k), fn(theirs + k)
        assert torch.equal(a, b)
        if a is not ours:
            a.sum().backward(), b.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
    return found


@pytest.mark.parametrize(
    ("pieces", "x", "expected"),
    [
        ((1, 4, 2), SMALL, [1]),
        ((1, 5, 3), SMALL, [1, 5, 3]),
        ((1, 4, 3), SMALL, [1, 3]),
        ((3, 0, 1), SMALL, [3]),
        ((1, 1, 1), LARGE, [1, 1, 1]),
    ],
    ids=["4 and 2", "5 and 3", "4 and 3", "0 and 1", "1 and 1 on much data"],
)
def test_pieces(pieces: tuple, x: torch.Tensor, expected: list[int], capsys: pytest.CaptureFixture) -> None:
    assert graphs(cut(*pieces), x) == expected


def test_pieces_at_breaks_that_were_asked_for() -> None:
    assert graphs(cut(1, 1, 1, fineline.graph_break), SMALL) == [1, 1, 1]


def test_parameters_are_no_data_of_the_call(capsys: pytest.CaptureFixture) -> None:
    layer = torch.nn.Linear(4, 2**17)

    def fn(x):
        y = x.sin()
        print("here")
        print("there")
        return layer(y)

    assert graphs(fn, SMALL) == [1]


def test_one_graph_break_makes_two_graphs(capsys: pytest.CaptureFixture) -> None:
    def fn(x):
        y = x.sin()
        print("here")
        return y.cos()

    assert graphs(fn, SMALL) == [1, 1]


def test_autocast_that_is_entered_in_a_graph_is_left_in_one(capsys: pytest.CaptureFixture) -> None:
    """Else eager code that trains behind it would go on with casts of the weights of before."""
    layer = torch.nn.Linear(4, 4)

    def fn(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
            print("here")
            print("there")
            z = layer(y)
        return z

    found = [fn, fineline.compile(fn, backend="aot_eager")]
    for _ in range(3):
        ours, theirs = [call(SMALL) for call in found]
        assert torch.equal(ours, theirs)
        with torch.no_grad():
            layer.weight += 0.5
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    assert depth == 1


def test_they_are_told(capsys: pytest.CaptureFixture) -> None:
    found = fineline.explain(cut(1, 4, 1))(SMALL)
    reasons = [event.reason for event in found.events if event.id == "FL404"]
    assert reasons == [
        "4 operators between two graph breaks: too few for a graph of their own",
        "1 operator behind a graph break: too few for a graph of their own",
    ]
