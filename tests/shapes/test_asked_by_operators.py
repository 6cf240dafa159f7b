"""Operators that need the value of a number that varies: where PyTorch runs them, differentiates them, or where AOTAutograd compiles the graph.

Each value has a program at first; with several of them the operator runs eagerly, between two graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import fineline
from fineline.backends.aot_eager import aot_eager
from fineline.errors import BackendFailed
from tests.oracle import Program, Step, check, t
from tests.shapes.varied import Counting

# PyTorch itself warns where a formula for a gradient fails while a graph is traced.
pytestmark = pytest.mark.filterwarnings("ignore:Error detected in")
IN_TWINS = ("captured", "reference", "fake")
CALLS, LEARNED = 11, 9

Operator = Callable[[torch.Tensor, Any], torch.Tensor]
# With gradients, behind AOTAutograd, all of these ask; some also without.
ASKING: dict[str, Operator] = {
    "power": lambda x, n: x**n,
    "power_by_name": lambda x, n: torch.pow(x, n),
    "power_in_place": lambda x, n: (x * 1).pow_(n),
    "power_of_the_number": lambda x, n: n**x,
    "power_of_the_number_by_name": lambda x, n: torch.pow(n, x),
    "power_of_a_sum": lambda x, n: x ** (n + 0.5),
    "root": lambda x, n: x ** (1.0 / n),
    "inverse_power": lambda x, n: x**-n,
    "power_and_factor": lambda x, n: (x**n) * n,
    "float_power": lambda x, n: torch.float_power(x, n),
    "power_of_a_size": lambda x, n: x ** (x.shape[0] + n),
    "pooling": lambda x, n: F.lp_pool1d(x.reshape(1, 1, -1), n, 2),
    "norm": lambda x, n: torch.norm(x, p=n),
    "vector_norm": lambda x, n: torch.linalg.vector_norm(x, ord=n),
    "normalize": lambda x, n: F.normalize(x, p=n, dim=0),
    "renorm": lambda x, n: x.reshape(2, 2).renorm(n, 0, 1.0),
    "distance": lambda x, n: torch.cdist(x.reshape(2, 2), x.reshape(2, 2) * 2, p=n),
    "lerp": lambda x, n: torch.lerp(x, x * 2, n),
    "celu": lambda x, n: F.celu(x, n),
    "huber": lambda x, n: F.huber_loss(x, x * 2, delta=n),
    "xlogy": lambda x, n: torch.xlogy(x, n),
    "padding": lambda x, n: F.pad(x, (0, 1), value=n),
}
# Of an int alone.
OF_AN_INT: dict[str, Operator] = {
    "polygamma": lambda x, n: torch.polygamma(n, x),
    "matrix_power": lambda x, n: torch.linalg.matrix_power(x.reshape(2, 2), n),
}
# An int is a symbol of the one graph; AOTAutograd needs the value of a float.
OF_A_FLOAT: dict[str, Operator] = {
    "clamp": lambda x, n: torch.clamp(x, max=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "elu": lambda x, n: F.elu(x, n),
    "threshold": lambda x, n: F.threshold(x, n, 0),
    "remainder": lambda x, n: x % n,
    "where": lambda x, n: torch.where(x > 1, x, n),
    "full": lambda x, n: torch.full((4,), n) + x,
    "added": lambda x, n: torch.add(x, x, alpha=n),
}
# Every number is a symbol of the one graph.
TAKEN: dict[str, Operator] = {
    "product": lambda x, n: x * n,
    "bias_correction": lambda x, n: x / (1 - 0.9**n) ** 0.5,
    "power_of_a_product": lambda x, n: 2.0 ** (x * n),
    "comparison": lambda x, n: (x > n).float() + x,
}
ALL = {**ASKING, **OF_AN_INT, **OF_A_FLOAT, **TAKEN}


def around(act: Operator) -> Operator:
    return lambda x, n: act(x.sin() + 1.5, n).cos()


def run(fn: Operator, n: Any, grad: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    x = torch.linspace(0.25, 1.0, 4).requires_grad_(grad)
    y = fn(x, n)
    if grad:
        y.sum().backward()
    return y.detach(), x.grad


class Traced(Counting):
    """Counts the graphs that AOTAutograd compiles, and those that run."""

    def __call__(self, gm: torch.fx.GraphModule, examples: list) -> Callable:
        self.made += 1
        compiled = aot_eager(gm, examples)

        def count(*args: Any) -> Any:
            self.ran += 1
            return compiled(*args)

        return count


def graphs(fn: Operator, values: list, grad: bool, backend: Counting) -> tuple[list[int], list[int]]:
    """Compares calls with eager ones. -> how many graphs were new in each call, and how many ran."""
    fast, made, ran = fineline.compile(fn, backend=backend), [], []
    for n in values:
        before = backend.made, backend.ran
        for found, expected in zip(run(fast, n, grad), run(fn, n, grad), strict=True):
            assert (found is None and expected is None) or torch.allclose(found, expected, equal_nan=True)
        made.append(backend.made - before[0])
        ran.append(backend.ran - before[1])
    assert not [event for event in fineline.report(fast).events if event.id == "FL104"]
    return made, ran


def values(kind: type) -> list:
    return [kind(3 + place) for place in range(CALLS)]


@pytest.mark.parametrize("act", [*ASKING, *OF_AN_INT])
def test_graphs_run_in_the_end(act: str) -> None:
    made, ran = graphs(around(ALL[act]), values(int), True, Traced())
    assert not any(made[LEARNED:]) and all(ran[1:]), (made, ran)


@pytest.mark.parametrize(("act", "grad"), [*[(act, False) for act in ASKING], *[(act, True) for act in OF_A_FLOAT]])
def test_graphs_run_in_the_end_for_a_float(act: str, grad: bool) -> None:
    made, ran = graphs(around(ALL[act]), values(float), grad, Traced())
    assert not any(made[LEARNED:]) and all(ran[1:]), (made, ran)


@pytest.mark.parametrize("act", ["clamp", "addcmul", "where"])
def test_an_int_that_such_operators_take_stays_in_one_graph(act: str) -> None:
    made, _ = graphs(around(ALL[act]), values(int), True, Traced())
    assert made == [1, 1, *[0] * (CALLS - 2)]


@pytest.mark.parametrize("act", [*ASKING, *OF_AN_INT])
def test_graphs_run_behind_a_backend_that_asks_nothing(act: str) -> None:
    made, ran = graphs(around(ALL[act]), values(int), True, Counting())
    assert not any(made[LEARNED:]) and all(ran[1:]), (made, ran)


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("act", TAKEN)
def test_others_stay_in_one_graph(act: str, kind: type) -> None:
    made, _ = graphs(around(TAKEN[act]), values(kind), True, Traced())
    assert made == [1, 1, *[0] * (CALLS - 2)]


@pytest.mark.parametrize("act", ALL)
def test_results(act: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place, 4) * 0.1 + 1, 3 + place)) for place in range(CALLS)]
    check(Program(act, lambda: around(ALL[act]), steps, frozenset(range(LEARNED)), breaks=True, repeats=True, tolerance=1e-6), twin)


def test_an_exponent_that_goes_round_breaks_no_graph() -> None:
    made, ran = graphs(lambda x, n: ((x.sin() + 1.5) ** (n % 3)).cos(), values(int), True, Traced())
    assert not any(made[5:]) and set(ran[1:]) == {1}, (made, ran)


def test_other_operators_keep_the_number() -> None:
    """The operator that asks is alone between two graphs, in which the number is a symbol."""

    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        y = (x * n).clamp(max=n).sin() + 1.5
        # From torch 2.14 on, a power does not ask.
        return (torch.xlogy(y, n) * n).cos() + torch.add(y, y, alpha=n)

    made, ran = graphs(fn, values(int), True, Traced())
    assert not any(made[LEARNED:]) and set(ran[LEARNED:]) == {2}, (made, ran)


def test_two_that_ask() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        y = torch.xlogy(x.sin() + 1.5, n).cos() + 1.5
        return torch.lerp(y, y * 2, n + 1).cos()

    made, ran = graphs(fn, [*values(int), *values(int)], True, Traced())
    assert not any(made[14:]) and set(ran[14:]) == {3}, (made, ran)


def test_where_no_graph_may_break() -> None:
    """Each value has a program there."""
    fn = around(ASKING["power"])
    fast = fineline.compile(fn, backend="aot_eager", fullgraph=True)
    for n in (2, 3, 4, 5, 6, 3, 2):
        assert all(map(torch.allclose, run(fast, n, True), run(fn, n, True)))


def test_the_exponent_of_a_loop() -> None:
    def fn(x: torch.Tensor, n: int) -> torch.Tensor:
        y = x.sin() + 1.5
        for k in range(3):
            y = (y ** (n + k)).tanh() + 1.5
        return y

    made, ran = graphs(fn, [*values(int), *values(int)], True, Traced())
    assert not any(made[14:]) and all(ran[14:]), (made, ran)


def test_a_backend_that_always_fails() -> None:
    def backend(gm: torch.fx.GraphModule, examples: list) -> Callable:
        if any([type(n) is torch.SymInt for n in examples]):
            raise RuntimeError("no symbols here")
        return gm.forward

    fast = fineline.compile(around(TAKEN["product"]), backend=backend)
    run(fast, 3, True)
    with pytest.raises(BackendFailed):
        run(fast, 4, True)
