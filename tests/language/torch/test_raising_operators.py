"""Operators that raise for the numbers in their tensors, where that is handled: what a first call met is not taken for what comes next."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import fineline
from fineline.report.events import LISTENERS, Event
from tests.oracle import Program, Step, Table, check, t

table = Table()
GOOD, BAD, NEGATIVE = torch.tensor([0, 1, 2]), torch.tensor([0, 9, 2]), torch.tensor([0, -9, 1])
EYE, ZEROS = torch.eye(3), torch.zeros(3, 3)

# Each with what it takes, and what it raises for.
OPERATORS: dict[str, tuple[Callable, torch.Tensor, torch.Tensor]] = {
    "an index": (lambda i: torch.ones(3)[i], GOOD, BAD),
    "embedding": (lambda i: F.embedding(i, torch.ones(4, 2)), GOOD, BAD),
    "cross_entropy": (lambda i: F.cross_entropy(torch.ones(3, 3), i), GOOD, BAD),
    "one_hot": (lambda i: F.one_hot(i, 3), GOOD, BAD),
    "scatter_": (lambda i: torch.zeros(3).scatter_(0, i, 1.0), GOOD, BAD),
    "repeat_interleave": (lambda i: torch.repeat_interleave(torch.ones(3), i), GOOD, NEGATIVE),
    "cholesky": (torch.linalg.cholesky, EYE, -EYE),
    "inv": (torch.linalg.inv, EYE, ZEROS),
    "multinomial": (lambda p: torch.multinomial(p, 1), EYE + 1, ZEROS),
    "bernoulli": (lambda p: torch.bernoulli(p), EYE, EYE * 3),
    "division": (lambda i: 5 // i, GOOD + 1, GOOD),
    "a subclass's": (lambda p: torch.distributions.Categorical(probs=p).entropy(), EYE + 1, -EYE),
}


def handled(call: Callable) -> Callable:
    def fn(x, i):
        try:
            found = call(i)
        except (RuntimeError, IndexError, ValueError) as e:
            found = type(e).__name__, str(e)
        return found, x + 1

    return fn


def between_writes(call: Callable) -> Callable:
    def fn(x, i):
        x.add_(1)
        try:
            with torch.no_grad():
                found = call(i)
        except (RuntimeError, IndexError, ValueError):
            found = x * 2
        finally:
            x.mul_(3)
        return found, torch.rand(2)

    return fn


def behind_another(call: Callable) -> Callable:
    """What the operator raises leaves the call, and has the exception that is being handled as its context."""

    def fn(x, i):
        try:
            raise KeyError("first")
        except KeyError:
            try:
                return x + 1, call(i)
            finally:
                x.add_(1)

    return fn


def handled_behind_another(call: Callable) -> Callable:
    def fn(x, i):
        try:
            raise KeyError("first")
        except KeyError:
            try:
                return x + 1, call(i)
            except (RuntimeError, IndexError, ValueError) as e:
                return x + 2, type(e.__context__).__name__, str(e.__context__)

    return fn


@pytest.mark.parametrize("around", [handled, between_writes, behind_another, handled_behind_another], ids=lambda f: f.__name__)
@pytest.mark.parametrize("name", OPERATORS)
def test_what_raised_may_not_raise_again(name: str, around: Callable, twin: str) -> None:
    call, good, bad = OPERATORS[name]
    for order in ((bad, good, bad, good), (good, bad, good, bad)):
        steps = [Step(k, lambda k, order=order: (t(k), order[k].clone())) for k in range(4)]
        check(Program(name, lambda: around(call), steps, frozenset(range(4)), min_graphs=0, breaks=True, backward=False), twin)


def checkpointed(x, i):
    return checkpoint(lambda a: (a[i] * 2, a + 1), x, use_reentrant=False)[0]


def under_vmap(x, i):
    return torch.func.vmap(lambda k: x[k] * 2)(i)


def under_grad(x, i):
    return torch.func.grad(lambda a: (a[i] * a[0]).sum())(x)


def of_two(x, i):
    return torch.cond(x.sum() > -100, lambda x, i: x[i] * 2, lambda x, i: x[i] * 3, (x, i))


# The graph that an operator runs raises: the user's call is what runs eagerly, at the next call as well. One that was captured without
# an error is begun again.
@pytest.mark.parametrize("good_first", [False, True])
@pytest.mark.parametrize("call", [checkpointed, of_two, under_vmap, under_grad], ids=lambda f: f.__name__)
def test_graphs_in_graphs(call: Callable, good_first: bool) -> None:
    if call is of_two and not good_first:
        pytest.skip("torch.cond compiles its functions in eager code, and prints what they raise")

    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        try:
            return call(x, i)
        except IndexError:
            return x * 3

    orders = (GOOD, BAD, GOOD, BAD) if good_first else (BAD, GOOD, BAD, GOOD)
    steps = [Step(k, lambda k: (t(k, 3, 3), orders[k].clone())) for k in range(4)]
    for twin in ("captured", "reference", "borders", "aot"):
        check(Program(call.__name__, lambda: fn, steps, frozenset(range(4)), min_graphs=0, breaks=True, backward=False), twin)


def test_dispatch_behind_what_raises_in_a_transform():
    def fn(x):
        try:
            return torch.func.jvp(lambda v: (v * 2).view(77), (x,), (x,))
        except RuntimeError:
            return x + 1

    before = str(torch._C._dispatch_tls_local_exclude_set())
    for _ in range(2):
        assert torch.equal(fineline.compile(fn, backend="eager")(torch.ones(3)), torch.ones(3) + 1)
        assert str(torch._C._dispatch_tls_local_exclude_set()) == before


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_the_code_handles_is_not_printed(backend: str, capfd: pytest.CaptureFixture) -> None:
    def fn(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        try:
            return checkpointed(x, i)
        except IndexError:
            return x * 3

    compiled = fineline.compile(fn, backend=backend)
    for i in (GOOD, BAD, GOOD, BAD):
        compiled(t(1, 3, 3), i.clone())
    assert "FX-traced" not in capfd.readouterr().err


# Of what follows from sizes and dtypes nothing depends on a run: one graph.
@table.snippet(max_graphs=1)
def sizes_that_do_not_fit(x):
    try:
        return x @ torch.ones(7, 2)
    except RuntimeError as e:
        return x * 2, str(e)


@table.snippet(max_graphs=1)
def a_dtype_that_is_not_taken(x):
    try:
        return torch.linalg.inv(torch.ones(2, 2, dtype=torch.int64))
    except RuntimeError as e:
        return x * 2, str(e)


def in_a_handler(x):
    try:
        raise KeyError("first")
    except KeyError:
        return x.clone()[1:].index_select(0, torch.tensor([2, 1]))


@table.program(breaks=True, min_graphs=0, calls=5, args=lambda place: (t(place, grad=place % 2 == 1),), recompiles=range(5))
def its_context_at_each_call():
    return in_a_handler


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_raising_operators(program: Program, twin: str) -> None:
    check(program, twin)


def test_without_graph_breaks_it_is_refused_by_name() -> None:
    fn = fineline.compile(handled(OPERATORS["cholesky"][0]), backend="eager", fullgraph=True)
    with pytest.raises(fineline.errors.Unsupported, match="torch.linalg.cholesky raises _LinAlgError.*FL523"):
        fn(t(), -EYE)
    assert torch.equal(fn(t(), EYE)[0], EYE)
    # Where nobody handles it, it is the user's own.
    plain = fineline.compile(torch.linalg.cholesky, backend="eager", fullgraph=True)
    with pytest.raises(torch.linalg.LinAlgError):
        plain(-EYE)


def test_one_graph_break_and_no_more() -> None:
    fn = fineline.compile(handled(OPERATORS["an index"][0]), backend="eager")
    events: list[Event] = []
    before, LISTENERS.all = LISTENERS.all, (events.append,)
    try:
        for k, i in zip(range(6), itertools.cycle([BAD, GOOD]), strict=False):
            fn(t(k), i)
    finally:
        LISTENERS.all = before
    assert [(e.kind, e.line) for e in events if e.id == "FL523"] == [("break", OPERATORS["an index"][0].__code__.co_firstlineno)]
