"""Frames that code looks at: names, lines and variables of the functions that call it, over several calls and behind graph breaks."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

import fineline
from fineline.errors import Unsupported
from tests.oracle import Program, Table, check, t

table = Table()
# What runs behind a graph break on fakes has lost variables by then, and says so.
LIVE = {"breaks": True, "recompiles": (1, 2), "min_graphs": 0, "twins": ("captured", "reference", "borders", "limit1", "counted")}


def variables():
    return sorted(inspect.currentframe().f_back.f_locals)


def variable(name):
    return sys._getframe(1).f_locals[name]


def callers(depth):
    found, frame = [], sys._getframe(1)
    for _ in range(depth):
        found.append((frame.f_code.co_name, frame.f_lineno, sorted(frame.f_locals)))
        frame = frame.f_back
    return found


def stack():
    return [(entry.function, entry.lineno) for entry in inspect.stack(0)][:2]


@table.snippet(**LIVE)
def variables_of_the_caller(x):
    y = x + 1
    z = variable("y") * 2
    return z, variables()


@table.snippet(**LIVE)
def two_frames_up(x):
    def inner(a):
        b = a * 2
        return callers(2), b, variable("a").sum()

    y = x.sin()
    return inner(y), stack(), variables()


@table.snippet(**LIVE)
def behind_graph_breaks(x):
    y = x * 2
    unused = x + 5
    fineline.graph_break()
    z = y + 1
    seen = variables(), callers(1)
    fineline.graph_break()
    w = z * 3
    return w, seen, variables(), variable("unused").sum(), callers(1)


@table.snippet(**LIVE)
def behind_breaks_in_what_is_called(x):
    def inner(v):
        kept = v - 1
        if v.sum() > 1e6:
            return 0
        return variables(), variable("kept") + 1

    y = x + 1
    return y, inner(y), variables()


@table.snippet(**LIVE)
def its_own_frame(x):
    frame = sys._getframe()
    y = x + 1
    line = frame.f_lineno
    return y, frame.f_lineno - line, frame.f_code.co_name, sorted(frame.f_locals), frame.f_locals["y"].sum()


@table.snippet(**LIVE)
def variables_that_change(x):
    def a():
        y = 5
        return b(), y

    def b():
        return sys._getframe(1).f_locals["y"], sys._getframe(2).f_locals["x"].sum(), sys._getframe(1).f_lineno

    x = x * 2
    first = a()
    x = x + 1
    fineline.graph_break()
    return x, first, a()


@table.snippet(**LIVE)
def in_comprehensions_and_lambdas(x):
    y = x + 1
    return y, [variables()[-1] for k in range(2)], (lambda v: variables())(1), sorted([2, 1], key=lambda v: -len(variables()))


def place():
    """Reads what no call changes: it costs no graph break."""
    frame = sys._getframe(1)
    return frame.f_code.co_name, frame.f_lineno, frame.f_code.co_firstlineno, frame.f_globals["__name__"], frame.f_code.co_varnames


def names_up_to(last):
    found, frame = [], sys._getframe(1)
    while frame.f_code.co_name != last:
        found.append((frame.f_code.co_name, frame.f_lineno))
        frame = frame.f_back
    return found


@table.snippet()
def the_place_of_the_caller(x):
    def inner(a):
        return a * 2, place()

    y = x.sin()
    return inner(y), place(), [sys._getframe(0).f_lineno for _ in range(2)], sys._getframe().f_code.co_qualname


@table.snippet()
def a_walk_to_a_frame_inside(x):
    def inner(a):
        return a * 2, names_up_to("a_walk_to_a_frame_inside")

    return inner(x.sin()), sys._getframe().f_code is a_walk_to_a_frame_inside.__code__


@table.snippet(breaks=True)
def a_frame_of_a_function_that_has_returned(x):
    def inner():
        return sys._getframe()

    frame = inner()
    y = x.sin()
    return y.cos(), frame.f_code.co_name, frame.f_lineno


# The second call is captured anew: it asks for the frame between two graphs.
@table.snippet(breaks=True, recompiles=(1,))
def a_frame_over_a_break(x):
    frame, y = sys._getframe(), x.sin()
    fineline.graph_break()
    return y.cos(), frame.f_code.co_name, frame.f_lineno


class Layer(torch.nn.Module):
    def forward(self, x):
        y = x + 1
        return y, variables(), callers(1)


@table.program(**LIVE)
def in_modules():
    layer = Layer()
    return lambda x: layer(x), layer


def test_variables_that_are_gone_are_refused() -> None:
    def fn(x):
        y = x * 2
        fineline.graph_break()
        return x + 1, variables()

    compiled = fineline.compile(fn, backend="eager", dynamic=True)
    with pytest.raises(Unsupported, match="FL439"):
        compiled(t(0))
    for i in range(3):
        assert compiled(t(i))[1] == fn(t(i))[1] == ["x", "y"]


def put(name, value):
    sys._getframe(1).f_locals[name] = value


def written(x):
    y = 1
    put("y", 5)
    return x * y


def written_in_what_is_called(x):
    return written(x + 1) + 1


def kept(x):
    names = sys._getframe().f_locals
    y = x + 1
    names["x"] = x * 2
    return names["y"] is y, len(names), x


class Shown:
    def text(self):
        y = 1
        frame = sys._getframe()
        return y, repr(frame.f_locals) == repr(dict(frame.f_locals))


def shown_in_a_method(x):
    return x + 1, Shown().text()


def read_alone(x):
    names = {**sys._getframe().f_locals}
    frame, y = sys._getframe(), x * 2
    return y, names, frame.f_locals["y"], "y" in frame.f_locals, frame.f_locals.get("z"), [*sorted(frame.f_locals)]


@pytest.mark.skipif(sys.version_info < (3, 13), reason="up to Python 3.12, writes into f_locals change no variable")
@pytest.mark.parametrize("fn", [written, written_in_what_is_called, kept, shown_in_a_method])
def test_writes_through_to_variables_are_refused_once(fn) -> None:
    compiled = fineline.compile(fn, backend="eager")
    with pytest.raises(Unsupported, match="FL439"):
        compiled(t(0))
    for i in range(3):
        assert str(compiled(t(i))) == str(fn(t(i)))


def test_a_read_alone_is_not_refused() -> None:
    compiled = fineline.compile(read_alone, backend="eager")
    for i in range(3):
        assert str(compiled(t(i))) == str(read_alone(t(i)))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_frames(program: Program, twin: str) -> None:
    check(program, twin)
