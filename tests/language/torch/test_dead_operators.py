"""Operators that may raise and whose results nobody needs: behind compilers that drop dead code they raise all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fineline
from tests.oracle import Program, Step, Table, check

table = Table()
BEHIND = {"backend": "aot_eager"}
# torch_geometric, which other tests import, replaces the name.
INDEX_SELECT = torch.index_select
Operator = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Any]


def item_set(x, i, m):
    y = torch.zeros_like(x)
    y[i] = 1.0
    return y


def overwritten(x, i, m):
    y = x[i]
    y.zero_()
    return y


def written_then_overwritten(x, i, m):
    y = torch.zeros_like(x)
    y.index_add_(0, i, x[:1])
    y.fill_(2)
    return y


def in_a_view(x, i, m):
    y = torch.zeros(2, x.shape[0])
    y[1].scatter_(0, i, 1.0)
    return y


OPERATORS: dict[str, Operator] = {
    "an index": lambda x, i, m: x[i],
    "two indices": lambda x, i, m: m[i, i],
    "index_select": lambda x, i, m: INDEX_SELECT(x, 0, i),
    "gather": lambda x, i, m: x.gather(0, i),
    "take_along_dim": lambda x, i, m: torch.take_along_dim(x, i, 0),
    "embedding": lambda x, i, m: F.embedding(i, m),
    "scatter_add": lambda x, i, m: torch.zeros_like(x).scatter_add(0, i, x[:1]),
    "index_put_": lambda x, i, m: torch.zeros_like(x).index_put_((i,), x[:1]),
    "an item set": item_set,
    "a method that sets an item": lambda x, i, m: torch.zeros_like(x).__setitem__(i, 1.0),
    "overwritten": overwritten,
    "written, then overwritten": written_then_overwritten,
    "in a view": in_a_view,
    "asked for its sizes": lambda x, i, m: torch.zeros_like(x[i]),
    "one_hot": lambda x, i, m: F.one_hot(i, x.shape[0]),
    "cross_entropy": lambda x, i, m: F.cross_entropy(m[:1], i),
    "cholesky": lambda x, i, m: torch.linalg.cholesky(torch.eye(3) * (3 - i)),
    "eigh": lambda x, i, m: torch.linalg.eigh(torch.full((2, 2), 1.0) / (3 - i).clamp(min=0)),
    "multinomial": lambda x, i, m: torch.multinomial(torch.ones(4) * (3 - i), 1),
    "a division": lambda x, i, m: torch.tensor([7]) // (i == 1).long(),
    "a product of two types": lambda x, i, m: torch.mm(m, m.double()),
    "an activation of integers": lambda x, i, m: F.silu(i),
}


def dropped(f: Operator) -> Callable[..., Any]:
    def fn(x, i, m):
        try:
            f(x, i, m)
        except (IndexError, RuntimeError) as e:
            return x - 1, type(e).__name__
        return x * 2, "in"

    return fn


def measured(f: Operator) -> Callable[..., Any]:
    def fn(x, i, m):
        try:
            y = f(x, i, m)
            n = None if y is None else y.dim() if isinstance(y, torch.Tensor) else len(y)
        except (IndexError, RuntimeError):
            return x - 1, "out"
        return x * 2, n

    return fn


def suppressed(f: Operator) -> Callable[..., Any]:
    def fn(x, i, m):
        y = x * 0
        with contextlib.suppress(IndexError, RuntimeError):
            f(x, i, m)
            y = x + 1
        return y

    return fn


def unhandled(f: Operator) -> Callable[..., Any]:
    def fn(x, i, m):
        f(x, i, m)
        return x * 2

    return fn


def with_gradients(f: Operator) -> Callable[..., Any]:
    def fn(x, i, m):
        x, m = x.requires_grad_(), m.requires_grad_()
        f(x * 2, i, m * 2)
        return x * 2

    return fn


def arguments(place: int) -> tuple[torch.Tensor, ...]:
    n = 4 + place // 3
    return torch.arange(float(n)) + 1, torch.tensor([n + 5 if place in (2, 4) else 1]), torch.ones(n, n)


def register(name: str, how: Callable[..., Any]) -> None:
    def make():
        return how(OPERATORS[name])

    make.__name__ = f"{how.__name__} {name}"
    steps = [Step(place, arguments) for place in range(6)]
    options = {"recompiles": frozenset({2, 3, 4}), "breaks": True, "repeats": True, "backward": False, "min_graphs": 0, "options": BEHIND}
    table.programs.append(Program(make.__name__, make, steps, twins=("captured", "dynamic", "fake"), **options))


for each in OPERATORS:
    register(each, dropped)
for way in (measured, suppressed, unhandled):
    for each in ("an index", "embedding", "an item set", "cholesky", "eigh", "a product of two types"):
        register(each, way)
for each in ("an index", "embedding", "eigh"):
    register(each, with_gradients)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_dead_operators(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("name", ["an index", "embedding", "overwritten"])
def test_inductor_keeps_them(name: str) -> None:
    fn = dropped(OPERATORS[name])
    compiled = fineline.compile(fn, backend="inductor")
    for place in range(3):
        expected, found = fn(*arguments(place)), compiled(*arguments(place))
        assert expected[1] == found[1] and torch.equal(expected[0], found[0])


def outputs_of(fn: Callable[..., Any], *args: Any) -> int:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    fineline.compile(fn, backend=backend)(*args)
    (graph,) = graphs
    return len(graph.graph.output_node().all_input_nodes)


def test_what_is_needed_is_no_output_more() -> None:
    x, i, m = arguments(0)

    def needed(x, i, m):
        buffer = torch.zeros(4)
        buffer[i] = x[i]
        buffer.index_add_(0, i, F.embedding(i, m)[:, 0])
        return buffer * 2

    def safe(x, i, m):
        torch.arange(4).relu(), x.view(2, 2).sum(), torch.zeros_like(x)
        return x + 1

    def raising(x, i, m):
        x[i], F.embedding(i, m)
        return x + 1

    assert [outputs_of(fn, x, i, m) for fn in (needed, safe, raising)] == [1, 1, 3]
    assert [len(fineline.export(fn, x, i, m).graph_module.graph.output_node().all_input_nodes) for fn in (needed, raising)] == [1, 1]
