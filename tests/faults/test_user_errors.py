"""What the user's code raises comes out as from eager: type, arguments, context, cause, and the user's lines."""

from __future__ import annotations

import sys
import traceback

import pytest
import torch

import fineline
from tests.faults import programs

X = torch.ones(3)


def outcome(fn, *args):
    try:
        fn(*args)
    except BaseException as e:
        return e
    raise AssertionError("nothing was raised")


def shape(e, seen=()):
    """An exception with its chain, without addresses."""
    if e is None:
        return None
    return type(e), str(e.args), e.__suppress_context__, shape(e.__cause__), shape(e.__context__)


def frames(e):
    return [(f.filename, f.name, f.lineno) for f in traceback.extract_tb(e.__traceback__)][1:]


CASES = [(fn, how) for fn in ("outer", "chained", "implicit", "again", "managed") for how in ("raise", "attribute", "operator")]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_first_call(name, how) -> None:
    fn = getattr(programs, name)
    expected, actual = outcome(fn, X, how), outcome(fineline.compile(fn, backend="eager"), X, how)
    assert shape(actual) == shape(expected)
    assert frames(actual) == frames(expected)
    for a, b in ((actual.__cause__, expected.__cause__), (actual.__context__, expected.__context__)):
        assert (a is None) == (b is None)
        if a is not None:
            assert [f.lineno for f in traceback.extract_tb(a.__traceback__)] == [f.lineno for f in traceback.extract_tb(b.__traceback__)]


@pytest.mark.parametrize(("name", "how"), CASES)
def test_the_text_of_the_traceback_is_eagers(name, how) -> None:
    fn = getattr(programs, name)

    def text(call) -> list[str]:
        lines = "".join(traceback.format_exception(outcome(call, X, how))).splitlines()
        return [line for line in lines if set(line.strip()) - set("^~")]

    assert text(fineline.compile(fn, backend="eager")) == text(fn)


def test_an_error_after_a_border_and_on_warm_calls() -> None:
    def f(x, k):
        y = x * 2
        if y.sum() > k:
            raise ValueError(f"over {k}")
        return y

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        assert shape(outcome(c, X, 1)) == shape(outcome(f, X, 1))
        assert torch.equal(c(X, 100), f(X, 100))


def test_the_context_from_around_the_region() -> None:
    def run(fn):
        try:
            raise LookupError("around")
        except LookupError:
            return outcome(fn, X, "raise")

    assert shape(run(fineline.compile(programs.inner, backend="eager"))) == shape(run(programs.inner))


def test_the_region_captures_after_an_error() -> None:
    c = fineline.compile(programs.inner, backend="eager")
    outcome(c, X, "raise")
    assert torch.equal(c(X, "no"), X * 2)
    assert [e.kind for e in c._region.reports.events].count("graph") == 1


def test_no_object_of_the_call_stays_alive_through_the_exception() -> None:
    e = outcome(fineline.compile(programs.outer, backend="eager"), X, "raise")
    names = [f.f_code.co_filename for f, _ in traceback.walk_tb(e.__traceback__)]
    assert not any("fineline" in name.replace("tests", "") and "/src/" in name for name in names)


# -- recursion --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("n", [50, 500, 800])
def test_deep_recursion(n) -> None:
    c = fineline.compile(programs.recursive, backend="eager")
    for _ in range(2):
        assert torch.equal(c(X, n), X + n)


def test_endless_recursion_is_a_recursion_error() -> None:
    c = fineline.compile(programs.endless, backend="eager")
    for _ in range(2):
        e = outcome(c, X)
        assert type(e) is RecursionError and str(e) == "maximum recursion depth exceeded"
        assert traceback.extract_tb(e.__traceback__)[1].filename == programs.__file__


def test_pythons_own_limit_holds() -> None:
    c = fineline.compile(programs.recursive, backend="eager")
    old = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(3000)
        assert torch.equal(c(X, 2000), X + 2000)
        fineline.reset()
        sys.setrecursionlimit(400)
        assert type(outcome(c, X, 600)) is RecursionError
    finally:
        sys.setrecursionlimit(old)


def test_a_handled_recursion_error_is_no_program() -> None:
    def f(x):
        try:
            return programs.endless(x)
        except RecursionError:
            return "too deep"

    c = fineline.compile(f, backend="eager")
    assert c(X) == c(X) == "too deep"
    assert not c._region.segments()
    assert "FL426" in {e.id for e in c._region.reports.events}


def counting(n, last):
    yield n
    if n != last:
        yield from counting(n + 1, last)


@pytest.mark.parametrize("finished", [pytest.param(0, marks=pytest.mark.later), 1200])
def test_generators_that_run_count(finished: int) -> None:
    """However many have run before: those are gone."""

    def f(x, last):
        for _ in range(finished):
            x = x + sum(counting(0, 0))
        return x + sum(counting(0, last))

    c = fineline.compile(f, backend="eager")
    for _ in range(2):
        assert torch.equal(c(X, 200), f(X, 200))
        e = outcome(c, X, -1)
        assert type(e) is RecursionError and str(e) == "maximum recursion depth exceeded"


# -- interrupts ---------------------------------------------------------------------------------------------------------
class Interrupting:
    """Raises at the n-th time it is asked."""

    def __init__(self, at, error=KeyboardInterrupt):
        self.left, self.error = at, error

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            raise self.error


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_an_interrupt_in_mid_capture(at, monkeypatch) -> None:
    from fineline.tensor_ops.tensors import TensorOps

    step, keep = Interrupting(at), TensorOps.keep

    def interrupted(self, *args, **kwargs):
        step()
        return keep(self, *args, **kwargs)

    monkeypatch.setattr(TensorOps, "keep", interrupted)

    def f(x):
        for i in range(5):
            x = x * 2 + i
        return x

    c = fineline.compile(f, backend="eager")
    with pytest.raises(KeyboardInterrupt):
        c(X)
    assert not c._region.segments() and not c._region.state.is_locked_here
    assert torch.equal(c(X), f(X)) and torch.equal(c(X + 1), f(X + 1))
    assert len(c._region.segments()) == 1


def test_an_interrupt_that_is_handled_is_no_program(monkeypatch) -> None:
    from fineline.tensor_ops.tensors import TensorOps

    step, keep = Interrupting(2), TensorOps.keep
    monkeypatch.setattr(TensorOps, "keep", lambda self, *a, **k: (step(), keep(self, *a, **k))[1])

    def f(x):
        try:
            return x * 2 + 1
        except KeyboardInterrupt:
            return "interrupted"

    c = fineline.compile(f, backend="eager")
    assert c(X) == "interrupted"
    assert torch.equal(c(X), X * 2 + 1) and torch.equal(c(X), X * 2 + 1)


def test_an_interrupt_in_the_backend() -> None:
    stop = [True]

    def backend(gm, inputs):
        if stop:
            raise KeyboardInterrupt
        return gm.forward

    c = fineline.compile(lambda x: x + 1, backend=backend)
    with pytest.raises(KeyboardInterrupt):
        c(X)
    stop.clear()
    assert torch.equal(c(X), X + 1)
    assert len(c._region.segments()) == 1
