"""Faults of fineline and of backends: the eager result with an event, or a clear error; a usable region afterwards."""

from __future__ import annotations

import logging

import pytest
import torch

import fineline
from fineline.codegen.residual_program import ResidualWriter
from fineline.errors import BackendFailed, BadArgument

pytestmark = pytest.mark.defects
X = torch.ones(3)


class Boom(RuntimeError):
    pass


def program(log):
    def f(x):
        log.append(len(log))
        y = x * 2
        if y.sum() > 0:
            y = y + torch.rand(3)
        return y, log[-1]

    return f


@pytest.mark.parametrize("place", ["compile", "returns", "graph_break", "_writes", "_guard_storages"])
def test_writing_a_program_fails(place, monkeypatch) -> None:
    def boom(*args, **kwargs):
        raise Boom("inside fineline")

    with monkeypatch.context() as m:
        m.setattr(ResidualWriter, place, boom)
        log: list[int] = []
        c = fineline.compile(program(log), backend="eager")
        torch.manual_seed(0)
        y, n = c(X)
        torch.manual_seed(0)
        assert torch.equal(y, X * 2 + torch.rand(3)) and n == 0 and log == [0]
        events = [e for e in c._region.reports.events if e.id == "FL901"]
        assert events and "Boom" in events[0].reason
    for i in (1, 2, 3):
        assert c(X)[1] == i and log == list(range(i + 1))
    assert c._region.segments()


@pytest.mark.parametrize("error", [AssertionError("broken"), fineline.errors.InternalError("broken")])
def test_an_instruction_fails_inside(error, monkeypatch, caplog) -> None:
    from fineline.tensor_ops import tensors

    # As if the code stood in fineline's own file.
    scope = {"error": error}
    exec(compile("def boom(self, *args, **kwargs):\n    raise error\n", tensors.__file__, "exec"), scope)
    boom = scope["boom"]
    log: list[int] = []
    c = fineline.compile(program(log), backend="eager")
    with monkeypatch.context() as m, caplog.at_level(logging.WARNING, "fineline"):
        m.setattr(tensors.TensorOps, "keep", boom)
        torch.manual_seed(0)
        y, n = c(X)
    torch.manual_seed(0)
    assert torch.equal(y, X * 2 + torch.rand(3)) and n == 0 and log == [0]
    assert "FL901" in {e.id for e in c._region.reports.events} and "internal error" in caplog.text
    assert c(X)[1] == 1 and c(X)[1] == 2


def test_a_users_own_assertion_is_the_users() -> None:
    def f(x):
        try:
            if x.shape[0] != 4:
                raise AssertionError("four")
        except AssertionError as e:
            return str(e)

    c = fineline.compile(f, backend="eager")
    assert c(X) == c(X) == "four"


# -- backends -----------------------------------------------------------------------------------------------------------
def test_a_backend_that_raises() -> None:
    broken = [True]

    def backend(gm, inputs):
        if broken:
            raise Boom("no code for you")
        return gm.forward

    c = fineline.compile(lambda x: x + 1, backend=backend)
    for _ in range(12):
        with pytest.raises(BackendFailed, match="no code for you") as caught:
            c(X)
        assert isinstance(caught.value.__cause__, Boom)
        assert __file__ in caught.value.where
    broken.clear()
    assert torch.equal(c(X), X + 1) and torch.equal(c(X), X + 1)
    assert len(c._region.segments()) == 1


def test_a_backend_that_raises_behind_a_border() -> None:
    def backend(gm, inputs):
        if any(n.name.startswith("sin") for n in gm.graph.nodes):
            raise Boom("no sines")
        return gm.forward

    def f(x):
        try:
            y = x + 1
            fineline.graph_break()
            return y.sin()
        except Exception:
            return "the user's handler is not for this"

    c = fineline.compile(f, backend=backend)
    for _ in range(2):
        with pytest.raises(BackendFailed, match="no sines"):
            c(X)


@pytest.mark.parametrize("value", [None, 3, "x"])
def test_a_backend_that_returns_no_callable(value) -> None:
    with pytest.raises(BackendFailed) as caught:
        fineline.compile(lambda x: x + 1, backend=lambda gm, inputs: value)(X)
    assert caught.value.id == "FL302"


def test_an_unknown_backend() -> None:
    with pytest.raises(BadArgument, match="did you mean 'inductor'"):
        fineline.compile(lambda x: x, backend="inducter")


@pytest.mark.parametrize("thing", [3, "f", [1], object()])
def test_not_callable(thing) -> None:
    for call in (fineline.compile, fineline.explain):
        with pytest.raises(BadArgument) as caught:
            call(thing)
        assert caught.value.id == "FL201"


@pytest.mark.parametrize(
    ("says", "how"),
    {
        "breaks is": {"breaks": "some"},
        "fullgraph=True means": {"breaks": "any", "fullgraph": True},
        "policy= takes a fineline.Policy": {"policy": [print]},
        "dynamic is": {"dynamic": "yes"},
        "dynamic_shapes= is not supported": {"dynamic_shapes": {"x": {0: "n"}}},
        "shapes_spec= is not supported": {"shapes_spec": object()},
        "recompile_limit": {"options": {"recompile_limit": "many"}},
        "evaluator": {"options": {"evaluator": "magic"}},
    }.items(),
)
def test_arguments_of_a_wrong_kind(says, how) -> None:
    with pytest.raises(BadArgument, match=f"^FL208: not a value for this argument: .*{says}") as caught:
        fineline.compile(lambda x: x, **{"backend": "eager", **how})
    assert caught.value.where == f"{__file__}:{test_arguments_of_a_wrong_kind.__code__.co_firstlineno + 15}"


# -- the limit -----------------------------------------------------------------------------------------------------------
def test_the_limit_is_said_once_with_the_guard_that_fails(caplog) -> None:
    def f(x, n):
        return x * n

    c = fineline.compile(f, backend="eager", dynamic=False, options={"recompile_limit": 3})
    with caplog.at_level(logging.WARNING, "fineline"):
        for n in range(1000, 1010):
            assert torch.equal(c(X, n), X * n)
    warnings = [r.getMessage() for r in caplog.records]
    assert len(warnings) == 1
    assert "recompile_limit" in warnings[0] and "n (read at " in warnings[0] and "1002 -> 1003" in warnings[0]
    assert len(c._region.segments()) == 3
    assert sum(e.kind == "limit" for e in c._region.reports.events) == 1


def test_the_limit_holds_behind_a_border_too() -> None:
    def f(x):
        return x * x.sum().item()

    c = fineline.compile(f, backend="eager", options={"recompile_limit": 3})
    for i in range(12):
        assert torch.equal(c(X + i), f(X + i))
    assert len(c._region.segments()) <= 4
