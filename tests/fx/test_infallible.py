"""Which operators a compiler drops although they may raise: the first look at a graph misses none that the whole analysis finds."""

from __future__ import annotations

import operator
import random

import pytest
import torch
from torch.fx import Graph, Node

from fineline.fx import infallible

# One argument, or two: operators that may raise, that do not, that write, that overwrite, that read sizes alone, that give views.
_ONE = ("relu", "neg_", "zero_", "view", "detach", "inverse")
_TWO = ("mul", "mul_", "copy_", "view_as", "gather")
_FUNCTIONS = (operator.add, operator.iadd, torch.zeros_like, torch.bmm, torch.take)


def _random_graph(rng: random.Random) -> tuple[Graph, frozenset[Node]]:
    graph = Graph()
    values = [graph.placeholder(name) for name in ("x", "y")]
    for _ in range(rng.randint(1, 9)):
        a, b = rng.choice(values), rng.choice(values)
        kind = rng.randrange(3)
        if kind == 0:
            node = graph.call_method(rng.choice(_ONE), (a,))
        elif kind == 1:
            node = graph.call_method(rng.choice(_TWO), (a, b))
        else:
            function = rng.choice(_FUNCTIONS)
            node = graph.call_function(function, (a,) if function is torch.zeros_like else (a, b))
        # What writes gives the tensor that it was given, which the recorder knows by its first node.
        name = infallible._name(node)
        if not (name.endswith("_") or name == "iadd"):
            values.append(node)
    given = frozenset(rng.sample(values, rng.randint(1, 2)))
    graph.output(tuple(given))
    return graph, given


@pytest.mark.parametrize("first", range(0, 6000, 1000))
def test_the_first_look_finds_all_graphs_that_need_the_whole_analysis(first: int) -> None:
    found = {True: 0, False: 0}
    for seed in range(first, first + 1000):
        graph, given = _random_graph(random.Random(seed))
        drops = infallible._drops(graph, given, ())
        found[drops] += 1
        assert drops or not infallible._unneeded(graph, given, ()), graph
    assert min(found.values()) > 100


def test_a_write_whose_result_nobody_takes_needs_no_analysis() -> None:
    graph = Graph()
    x, index = graph.placeholder("x"), graph.placeholder("index")
    total = graph.call_function(operator.add, (x, x))
    graph.call_function(operator.iadd, (total, graph.call_function(torch.take, (x, index))))
    out = graph.call_method("relu", (total,))
    graph.output((out,))
    assert not infallible._drops(graph, frozenset([out]), ())


def test_functions_are_those_that_are_called() -> None:
    graph = Graph()
    x = graph.placeholder("x")
    erased = graph.call_function(torch.take, (x, x))
    kept = graph.call_function(operator.add, (x, x))
    graph.erase_node(erased)
    assert [(function, [*nodes]) for function, nodes in infallible.functions(graph)] == [(operator.add, [kept])]
