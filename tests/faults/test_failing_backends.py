"""Graphs that raise where the code that they were captured from does not: the second failure of one is an error."""

from __future__ import annotations

import logging

import pytest
import torch

import fineline
from fineline.errors import BackendFailed

X = torch.ones(3)


class Broken:
    """A backend whose graphs fail from the n-th call on, as often as asked."""

    def __init__(self, after=0, times=10**6, error=RuntimeError, only=None):
        self.after, self.times, self.error, self.only = after, times, error, only
        self.graphs = 0

    def __call__(self, gm, inputs):
        self.graphs += 1
        if self.only is not None and self.graphs != self.only:
            return gm.forward
        calls = []

        def run(*args):
            calls.append(None)
            if self.after < len(calls) <= self.after + self.times:
                raise self.error("launch failed")
            return gm.forward(*args)

        return run


def outcomes(call, n):
    out = []
    for _ in range(n):
        try:
            out.append(call())
        except Exception as e:
            out.append(e)
    return out


def kinds(call, n):
    return [type(o).__name__ for o in outcomes(call, n)]


def plain(x):
    return x.sin() + 1


@pytest.mark.parametrize("kw", [{}, {"fullgraph": True}, {"dynamic": True}, {"breaks": "declared"}], ids=str)
def test_the_second_failure_is_an_error(kw) -> None:
    compiled = fineline.compile(plain, backend=Broken(), **kw)
    out = outcomes(lambda: compiled(X), 5)
    errors = [o for o in out if isinstance(o, BackendFailed)]
    fakes = kw.get("dynamic")
    assert len(errors) == (4 if fakes else 3) and errors[-1].id == "FL304" and type(errors[-1].__cause__) is RuntimeError
    assert str(errors[-1].__cause__) == "launch failed" and __file__ in str(errors[-1]) and "fall_back" in errors[-1].next_step
    assert all(torch.equal(o, plain(X)) for o in out if not isinstance(o, BackendFailed))


@pytest.mark.parametrize("kw", [{}, {"fullgraph": True}, {"dynamic": True}], ids=str)
def test_who_wants_to_falls_back(kw, caplog) -> None:
    compiled = fineline.compile(plain, backend=Broken(), options={"fall_back": True}, **kw)
    with caplog.at_level(logging.WARNING, "fineline"):
        assert all(torch.equal(o, plain(X)) for o in outcomes(lambda: compiled(X), 6))
    assert "a compiled graph failed; the call ran eagerly" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError, torch.OutOfMemoryError, ValueError, NotImplementedError, KeyError])
def test_whatever_the_backend_raises(error) -> None:
    compiled = fineline.compile(plain, backend=Broken(error=error))
    errors = [o for o in outcomes(lambda: compiled(X), 4) if isinstance(o, Exception)]
    assert [type(e) for e in errors] == [BackendFailed] * 2 and type(errors[0].__cause__) is error


def test_one_failure_is_a_warning() -> None:
    compiled = fineline.compile(plain, backend=Broken(after=1, times=1))
    assert all(torch.equal(o, plain(X)) for o in outcomes(lambda: compiled(X), 6))


def test_each_graph_counts_for_itself() -> None:
    def fn(x, flag):
        return x.sin() if flag else x.cos()

    compiled = fineline.compile(fn, backend=Broken(only=1))
    good = lambda: compiled(X, False)  # noqa: E731
    bad = lambda: compiled(X, True)  # noqa: E731
    assert kinds(bad, 3) == ["Tensor", "Tensor", "BackendFailed"]
    assert kinds(good, 4) == ["Tensor"] * 4 and kinds(bad, 1) == ["BackendFailed"]


def test_behind_a_graph_break() -> None:
    def fn(x, log):
        y = x.sin()
        fineline.graph_break()
        log.append(1)
        return y.cos() + 1

    for only in (1, 2):
        compiled, log = fineline.compile(fn, backend=Broken(only=only)), []
        assert kinds(lambda c=compiled, log=log: c(X, log), 4) == ["Tensor", "Tensor", "BackendFailed", "BackendFailed"]
        assert len(log) == 4


def test_training() -> None:
    """A failure in a backward pass is the backward pass's: it is raised there, each time."""

    def backend(gm, inputs):
        class Failing(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, g):
                raise RuntimeError("launch failed")

        return lambda *args: tuple([Failing.apply(o) for o in gm.forward(*args)])

    w = torch.ones(3, requires_grad=True)
    compiled = fineline.compile(lambda: (w * 2).sum(), backend=backend)
    compiled().backward()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="launch failed"):
            compiled().backward()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_errors_of_the_code_are_raised_as_eager_code_raises_them(backend, dynamic) -> None:
    def fn(x, i):
        return x[i] * 2

    compiled = fineline.compile(fn, backend=backend, dynamic=dynamic)
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 7])
    compiled(X, good)
    for _ in range(4):
        with pytest.raises(IndexError):
            compiled(X, bad)
        assert torch.equal(compiled(X, good), fn(X, good))


def test_errors_that_the_code_handles_are_no_failures_of_the_graph() -> None:
    def fn(x, i):
        try:
            return x[i] * 2
        except IndexError:
            return x * 0

    compiled = fineline.compile(fn, backend="eager")
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 7])
    compiled(X, good)
    for _ in range(4):
        assert torch.equal(compiled(X, bad), X * 0)
        assert torch.equal(compiled(X, good), fn(X, good))


def test_a_backend_that_fails_under_a_handler_is_told_of() -> None:
    def fn(x):
        try:
            return x.sin() * 2
        except ValueError:
            return x * 0

    compiled = fineline.compile(fn, backend=Broken())
    assert kinds(lambda: compiled(X), 4) == ["Tensor", "Tensor", "BackendFailed", "BackendFailed"]


def test_writes_are_made_once_and_the_failure_is_told() -> None:
    def fn(x, state):
        state.append(x.shape[0])
        x.add_(1)
        return x * 2

    compiled, state = fineline.compile(fn, backend=Broken()), []
    for n in range(1, 5):
        x = torch.zeros(3)
        try:
            compiled(x, state)
        except BackendFailed:
            assert n > 2
        assert torch.equal(x, torch.ones(3)) and len(state) == n
