"""Segments of few operators after a graph break: a custom backend gets each, Inductor those that gain by it, and options decide."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import fineline
from fineline.backends.registry import lookup_backend
from fineline.report.events import LISTENERS
from tests.oracle import Program, Table, check

SMALL = torch.arange(12.0).view(3, 4)
table = Table()


def cut(before: int, between: int, after: int, cutting: Callable = print) -> Callable:
    """Returns a function of so many operators before, between and after two graph breaks."""

    def fn(x):
        for _ in range(before):
            x = x.sin()
        cutting("here") if cutting is print else cutting()
        for _ in range(between):
            x = x.tan()
        cutting("here") if cutting is print else cutting()
        for _ in range(after):
            x = x.cos()
        return x

    return fn


def graphs(fn: Callable, x: torch.Tensor, least: int | None = None, name: str | None = None) -> list[int]:
    """Returns the operators of each graph that a backend gets; later calls with other numbers give it no more."""
    found: list[int] = []

    def backend(gm, examples):
        found.append(len([node for node in gm.graph.nodes if node.op.startswith("call")]))
        return gm.forward

    options = None if least is None else {"min_graph_operators": least}
    compiled = fineline.compile(fn, backend=backend, options=options)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    for k in range(3):
        a, b = compiled(ours + k), fn(theirs + k)
        assert torch.equal(a, b)
        if a is not ours:
            a.sum().backward(), b.sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
    return found


@pytest.mark.parametrize("pieces", [(1, 4, 2), (1, 5, 3), (1, 1, 1), (3, 0, 1), (1, 2, 0), (11, 1, 11)], ids=str)
def test_a_custom_backend_gets_each_segment(pieces: tuple, capsys: pytest.CaptureFixture) -> None:
    assert graphs(cut(*pieces), SMALL) == [n for n in pieces if n]


@pytest.mark.parametrize("n", [1, 4, 5, 11, 32])
def test_a_custom_backend_gets_each_segment_however_often_the_call_is_cut(n: int, capsys: pytest.CaptureFixture) -> None:
    pieces = "".join([f"{'x = x.sin(); ' * n}print()\n    " for _ in range(8)])
    space: dict = {}
    exec(f"def fn(x):\n    {pieces}\n    return x + 1", space)
    assert graphs(space["fn"], SMALL) == [n] * 8 + [1]


def test_only_a_graph_for_a_backend_gives_what_nobody_takes(capsys: pytest.CaptureFixture) -> None:
    def fn(x, i):
        print("here")
        x.take(i)
        print("here")
        return x.sin()

    for least in (1, 9):
        compiled = fineline.compile(fn, backend=lambda gm, examples: gm.forward, options={"min_graph_operators": least})
        told = fineline.explain(compiled)(SMALL, torch.tensor([1]))
        # A compiler would drop the operator, and it may raise.
        assert ("del unused" in told.program) is (least == 1)
        compiled(SMALL, torch.tensor([1]))
        with pytest.raises(IndexError):
            compiled(SMALL, torch.tensor([99]))


def test_equal_segments_at_other_places_are_graphs_of_their_own(capsys: pytest.CaptureFixture) -> None:
    def fn(x):
        print(x := x * 2)
        print(x := x * 2)
        print(x := x * 2)
        return x * 2

    assert graphs(fn, SMALL) == [1, 1, 1, 1]


def test_one_function_called_at_several_lines_gives_a_graph_at_each(capsys: pytest.CaptureFixture) -> None:
    def block(x):
        x = (x * 1.5).sin()
        print(end="")
        return x

    def fn(x):
        x = block(x)
        x = block(x)
        x = block(x)
        return block(x)

    assert graphs(fn, SMALL) == [2, 2, 2, 2]


def test_equal_layers_of_one_loop_share_a_graph(capsys: pytest.CaptureFixture) -> None:
    """As they share the code of their forward under torch.compile."""
    layers = [torch.nn.Linear(4, 4, bias=False) for _ in range(6)]

    def fn(x):
        for layer in layers:
            x = layer(x).relu()
            print(end="")
        return x

    assert graphs(fn, SMALL) == [2]


@pytest.mark.parametrize(
    ("least", "pieces", "expected"),
    [
        (1, (1, 1, 1), [1, 1, 1]),
        (3, (1, 2, 3), [1, 3]),
        (3, (1, 3, 2), [1, 3]),
        (3, (1, 2, 2), [1]),
        (5, (1, 4, 5), [1, 5]),
        (100, (99, 99, 100), [99, 100]),
    ],
    ids=str,
)
def test_the_option_says_how_many_operators_make_a_graph(least: int, pieces: tuple, expected: list[int], capsys: pytest.CaptureFixture) -> None:
    assert graphs(cut(*pieces), SMALL, least) == expected


@pytest.mark.parametrize("least", [3, 1000])
def test_segments_at_breaks_that_were_asked_for_are_graphs(least: int) -> None:
    assert graphs(cut(1, 1, 1, fineline.graph_break), SMALL, least) == [1, 1, 1]


@pytest.mark.parametrize("value", [0, -1, "3", 2.5, None])
def test_bad_numbers_of_operators_are_refused(value: object) -> None:
    with pytest.raises(fineline.errors.BadArgument, match="min_graph_operators"):
        fineline.compile(lambda x: x, options={"min_graph_operators": value})


def test_defaults_of_backends() -> None:
    def own(gm, examples):
        return gm.forward

    fineline.register_backend(own, name="test_small_own")
    least = {name: lookup_backend(name).min_graph_operators for name in ("eager", "aot_eager", "inductor", "test_small_own")}
    assert least == {"eager": 1, "aot_eager": 1, "inductor": 3, "test_small_own": 1}
    assert lookup_backend(own).min_graph_operators == 1


@table.snippet(breaks=True, options={"min_graph_operators": 3})
def few_operators_between_breaks(x):
    seen = []
    y = x.sin()
    print("one")
    z = y + 1
    z.add_(2)
    print("two")
    seen.append(z.sum())
    w = (z * y).cos().exp()
    print("three")
    return w - 1, seen


@table.program(breaks=True, options={"min_graph_operators": 3}, recompiles=(1, 2))
def few_operators_with_gradients_and_writes():
    weight, seen = torch.ones(4, requires_grad=True), []

    def fn(x):
        y = x @ weight
        print(end="")
        z = y * 2
        print(end="")
        seen.append(len(seen))
        with torch.no_grad():
            x[0] = 1
        return z, x + 1

    return fn, (weight, seen)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_few_operators(program: Program, twin: str) -> None:
    check(program, twin)


def test_autocast_that_is_entered_in_a_graph_is_left_in_one(capsys: pytest.CaptureFixture) -> None:
    """Else eager code that trains after it would go on with casts of the old weights."""
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


def test_events_name_the_option(capsys: pytest.CaptureFixture) -> None:
    heard: list[str] = []
    LISTENERS.all = before = (*LISTENERS.all, lambda event: heard.append(event.reason) if event.id == "FL404" else None)
    try:
        fineline.compile(cut(1, 4, 1), backend="eager", options={"min_graph_operators": 5})(SMALL)
    finally:
        LISTENERS.all = before[:-1]
    assert heard == [
        "4 operators between two graph breaks: min_graph_operators is 5",
        "1 operator after a graph break: min_graph_operators is 5",
    ]
