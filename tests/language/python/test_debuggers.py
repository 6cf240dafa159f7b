"""What debuggers and error reports see: the user's frames with the user's variables, at the first call and at later ones."""

from __future__ import annotations

import inspect
import io
import logging
import pdb
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fineline
from fineline.errors import Unsupported
from fineline.frames.stub_frames import is_own
from fineline.stacks import PROGRAM

CALLS = 3
DYNAMIC = pytest.mark.parametrize("dynamic", [None, True])


def x_() -> Tensor:
    return torch.ones(4)


# -- after an exception ----------------------------------------------------------------------------------------------------
def deep(x, k):
    q = x * k
    return q.view(7)


def through_calls(x):
    y = x + 1
    return deep(y, 3)


def by_raise(x):
    y, text = x + 1, "no"
    if x.dim() == 1:
        raise KeyError(text, y)


def in_a_loop(x):
    for i in range(3):
        x = x * 2
        if i == 1:
            x.view(7)


def in_a_comprehension(x):
    return [deep(x, n) for n in range(2, 4)]


def in_a_generator(x):
    def parts(n):
        for i in range(n):
            yield deep(x, i)

    return list(parts(2))


def in_a_closure(x):
    k = 3

    def inner(y):
        z = y * k
        return z.view(7)

    return inner(x)


def keeping_a_cell(x):
    q = x * 2
    give = lambda: q  # noqa: E731
    return give().view(7)


def with_unbound_names(x):
    gone = 1
    del gone
    x.view(7)
    later = 2
    return later


def of_many(x, *rest, flag=True, **named):
    total = x + 1
    return total.view(7)


def with_a_handler(x):
    y = x + 1
    try:
        return deep(y, 2)
    except KeyError:
        return y


def in_finally(x):
    y = x + 1
    try:
        z = y * 2
    finally:
        z.view(7)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def run(self, x):
        h = self.lin(x)
        return deep(h, 2)


NET = Net()


def in_a_method(x):
    return NET.run(x)


def behind_a_border(x):
    y = x + 1
    print(end="")
    z = y * 2
    return deep(z + y + x, 3)


FAILING = [
    through_calls, by_raise, in_a_loop, in_a_comprehension, in_a_generator, in_a_closure, keeping_a_cell, with_unbound_names, of_many,
    with_a_handler, in_finally, in_a_method, behind_a_border,
]  # fmt: skip


def failure(fn: Callable) -> BaseException:
    with pytest.raises((RuntimeError, KeyError)) as caught:
        fn(x_())
    return caught.value


def frames(e: BaseException) -> list[tuple[str, int, dict[str, Any]]]:
    """The user's frames in a traceback, from the failing function on: name, line, variables."""
    out = []
    tb = e.__traceback__.tb_next if e.__traceback__ is not None else None
    while tb is not None:
        code = tb.tb_frame.f_code
        if not is_own(code) and not code.co_filename.startswith(PROGRAM):
            out.append((code.co_name, tb.tb_lineno, dict(tb.tb_frame.f_locals)))
        tb = tb.tb_next
    return out[1:] if out and out[0][0] == "failure" else out


def shown(found: list[tuple[str, int, dict[str, Any]]]) -> list[Any]:
    # The iterator of a comprehension (.0) is no variable of the user's.
    return [(name, line, {k: repr(v) if isinstance(v, (Tensor, int, str, dict, tuple)) else type(v).__name__ for k, v in variables.items() if k != ".0"})
            for name, line, variables in found]  # fmt: skip


@DYNAMIC
@pytest.mark.parametrize("fn", FAILING, ids=lambda fn: fn.__name__)
def test_frames_have_the_variables(fn: Callable, dynamic: bool | None) -> None:
    expected = shown(frames(failure(fn)))
    compiled = fineline.compile(fn, backend="eager", dynamic=dynamic)
    for call in range(CALLS):
        found = shown(frames(failure(compiled)))
        assert found == expected, f"call {call}"


@torch.compiler.disable
def eagerly(z):
    held = 5
    raise RuntimeError(f"e{held}")


def calling_eager_code(x):
    y = x + 1
    for i in range(3):
        if i == 1:
            eagerly(y * i)
    return y, i


@DYNAMIC
def test_frames_that_called_eager_code_have_what_the_program_has(dynamic: bool | None) -> None:
    expected = {name: variables for name, _, variables in shown(frames(failure(calling_eager_code)))}
    compiled = fineline.compile(calling_eager_code, backend="eager", dynamic=dynamic)
    for _ in range(CALLS):
        found = {name: variables for name, _, variables in shown(frames(failure(compiled)))}
        assert found["eagerly"] == expected["eagerly"]
        own = found["calling_eager_code"]
        assert {"x", "y", "i"} == set(own) and own.items() <= expected["calling_eager_code"].items()


def test_variables_of_a_handled_exception() -> None:
    def fn(x):
        y = x * 2
        try:
            deep(x, 2)
        except RuntimeError as e:
            te = traceback.TracebackException.from_exception(e, capture_locals=True)
            return y, [(f.name, sorted(f.locals or {})) for f in te.stack]

    compiled = fineline.compile(fn, backend="eager")
    if sys.version_info >= (3, 13):
        # What the library keeps writes through to the variables of the function, which still runs: refused once.
        with pytest.raises(Unsupported, match="FL439"):
            compiled(x_())
    _, found = compiled(x_())
    # The entry of the frame that handles the exception has the variables of now, as in eager code.
    assert found == fn(x_())[1] == [("fn", ["e", "x", "y"]), ("deep", ["k", "q", "x"])]


def recursive(x, n):
    y = x * n
    if n == 0:
        raise RuntimeError
    if n < 3:
        return recursive(x, n - 1)
    try:
        return recursive(x, n - 1)
    except RuntimeError as e:
        y = y + 100
        entries, tb = [], e.__traceback__
        while tb is not None:
            entries.append((tb.tb_frame.f_locals["n"], tb.tb_frame.f_locals["y"]))
            tb = tb.tb_next
        return entries


def marked(x, n):
    y = x + n
    try:
        raise RuntimeError
    except RuntimeError as e:
        frame = e.__traceback__.tb_frame
        before = frame.f_locals.get("y")
        y = y * 2
        return before, frame.f_locals.get("y"), sorted(frame.f_locals), frame.f_locals.get("e") is e


def kept(x, n):
    """The entry is of a call that has ended, and another call of the function runs."""
    y = x * n
    try:
        if n < 3:
            raise RuntimeError
    except RuntimeError as e:
        y = y + 1
        return e
    error = kept(x, n - 1)
    return y, error.__traceback__.tb_frame.f_locals["n"]


@pytest.mark.parametrize("fn", [recursive, marked, kept], ids=lambda fn: fn.__name__)
def test_variables_of_the_frame_that_handles_it(fn: Callable) -> None:
    found = fineline.compile(fn, backend="eager")(x_(), 3)
    assert repr(found) == repr(fn(x_(), 3))


TOLD = ("deep", "q", "tensor([3., 3., 3., 3.])")


def by_captured_locals(e: BaseException) -> str:
    return "".join(traceback.TracebackException.from_exception(e, capture_locals=True).format())


def by_inspect(e: BaseException) -> str:
    try:
        raise e
    except RuntimeError:
        return "".join([f"{info.function} {info.frame.f_locals}" for info in inspect.trace()])


def by_post_mortem(e: BaseException) -> str:
    out = io.StringIO()
    debugger = pdb.Pdb(stdin=io.StringIO("where\np 'q', q\nup\np y\nq\n"), stdout=out, nosigint=True)
    debugger.reset()
    debugger.interaction(None, e.__traceback__)  # type: ignore[arg-type]
    assert "tensor([2., 2., 2., 2.])" not in out.getvalue().splitlines()[0]
    return out.getvalue().replace("tensor([6., 6., 6., 6.])", TOLD[2])


@DYNAMIC
@pytest.mark.parametrize("tell", [by_captured_locals, by_inspect, by_post_mortem])
def test_reports_show_them(tell: Callable, dynamic: bool | None) -> None:
    def fn(x):
        y = x * 1
        return deep(y, 3)

    compiled = fineline.compile(fn, backend="eager", dynamic=dynamic)
    for _ in range(CALLS):
        text = tell(failure(compiled))
        assert all([part in text for part in TOLD]), text


def test_logged_exceptions_have_them(caplog: pytest.LogCaptureFixture) -> None:
    compiled = fineline.compile(through_calls, backend="eager")
    for _ in range(CALLS):
        caplog.clear()
        try:
            compiled(x_())
        except RuntimeError:
            logging.getLogger("user").exception("failed")
        info = caplog.records[-1].exc_info
        assert info is not None and info[1] is not None
        assert frames(info[1])[-1][2].keys() == {"x", "k", "q"}


def test_an_exception_holds_what_its_frames_hold_and_no_more() -> None:
    compiled = fineline.compile(through_calls, backend="eager")
    e = failure(compiled)
    found = frames(e)
    assert found[0][2]["y"] is found[1][2]["x"]


# -- in a debugger -----------------------------------------------------------------------------------------------------------
LOOK = "p 'seen', sorted(k for k in locals() if not k.startswith('_'))\nc\n"


class Stopped(io.StringIO):
    """What a debugger has printed."""

    def session(self, call: Callable, script: str = LOOK) -> str:
        def hook(*args: Any, **kwargs: Any) -> None:
            pdb.Pdb(stdin=io.StringIO(script), stdout=self, nosigint=True).set_trace(sys._getframe(1))

        before, sys.breakpointhook = sys.breakpointhook, hook
        try:
            call()
        finally:
            sys.breakpointhook = before
        return self.getvalue().replace("(Pdb) ", "")


def stopping(x):
    y = x * 2
    breakpoint()
    return y + 1


def stopping_inside(x):
    a = x + 1
    return stopping(a) * 2


class StoppingNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        h = self.lin(x)
        breakpoint()
        return h


def stopping_in_a_loop(x):
    for i in range(3):
        x = x + 1
        if i == 1:
            breakpoint()
    return x


def stopping_in_try(x):
    try:
        y = x + 1
        breakpoint()
    finally:
        z = 3
    return y * z


def stopping_in_a_comprehension(x):
    return [stopping(x) for _ in range(1)]


def stopping_in_a_generator(x):
    def parts():
        w = x * 3
        breakpoint()
        yield w

    return sum(parts())


def stopping_in_a_closure(x):
    k = 3

    def inner(y):
        z = y * k
        breakpoint()
        return z

    return inner(x)


def stopping_behind_a_border(x):
    y = x + 2
    print(end="")
    z = y + x
    breakpoint()
    return y + z


def stopping_behind_a_write(x):
    x.add_(1)
    y = x * 2
    breakpoint()
    return y


STOPPING = [
    stopping, stopping_inside, StoppingNet(), stopping_in_a_loop, stopping_in_try, stopping_in_a_comprehension, stopping_in_a_generator,
    stopping_in_a_closure,
]  # fmt: skip


@DYNAMIC
@pytest.mark.parametrize("fn", STOPPING, ids=lambda fn: getattr(fn, "__name__", "a_module"))
def test_a_debugger_stops_in_the_users_frame(fn: Callable, dynamic: bool | None) -> None:
    expected = Stopped().session(lambda: fn(x_()))
    compiled = fineline.compile(fn, backend="eager", dynamic=dynamic)
    for _ in range(CALLS):
        assert Stopped().session(lambda: compiled(x_())) == expected


@pytest.mark.parametrize(("fn", "dynamic"), [(stopping_behind_a_border, None), (stopping_behind_a_border, True), (stopping_behind_a_write, None)])
def test_a_debugger_stops_in_a_frame_like_the_users(fn: Callable, dynamic: bool | None) -> None:
    """Where the call can't begin again, at the first one: at the line of the breakpoint, with the variables; afterwards in the frame itself."""
    expected = Stopped().session(lambda: fn(x_()))
    compiled = fineline.compile(fn, backend="eager", dynamic=dynamic)
    first = Stopped().session(lambda: compiled(x_()))
    assert [line for line in first.splitlines() if "seen" in line] == [line for line in expected.splitlines() if "seen" in line]
    assert f"{fn.__name__}()" in first and "-> breakpoint()" in first and "fineline" not in first
    for _ in range(CALLS):
        assert Stopped().session(lambda: compiled(x_())) == expected


SCRIPT = """
import pdb, torch, fineline

def fn(x):
    y = x * 2
    pdb.set_trace()
    return y

compiled = fineline.compile(fn, backend="eager")
for _ in range(3):
    compiled(torch.ones(3))
"""


def test_set_trace_is_such_a_call(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, str(path)], input=LOOK * CALLS, capture_output=True, text=True, check=True)
    assert done.stdout.count("('seen', ['x', 'y'])") == CALLS
    # Python 3.13 stops in the line of the call, older ones after it.
    line = 6 if sys.version_info >= (3, 13) else 7
    assert done.stdout.count(f"> {path}({line})fn()") == CALLS


def test_stepping_goes_on_in_the_users_code() -> None:
    compiled = fineline.compile(stopping_inside, backend="eager")
    text = Stopped().session(lambda: compiled(x_()), "p y.shape\nn\nn\nn\nup\np a.shape\nc\n")
    assert "torch.Size([4])" in text and "-> return stopping(a) * 2" in text


def test_the_way_without_the_call_stays_compiled() -> None:
    seen: list[Any] = []

    def fn(x, stop):
        y = x * 2
        if stop:
            breakpoint()
        return y

    compiled = fineline.compile(fn, backend=lambda gm, inputs: seen.append(gm) or gm.forward)
    compiled(x_(), False)
    assert torch.equal(compiled(x_(), False), x_() * 2)
    assert len(seen) == 1


def test_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "breakpointhook", lambda: None)
    events = fineline.explain(stopping)(x_()).events
    (event,) = [e for e in events if e.id == "FL449"]
    assert "breakpoint() stops in a debugger" in event.reason and event.where.startswith(__file__)


def test_turned_off_it_is_a_graph_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONBREAKPOINT", "0")
    monkeypatch.setattr(sys, "breakpointhook", sys.__breakpointhook__)
    seen: list[Any] = []
    compiled = fineline.compile(stopping, backend=lambda gm, inputs: seen.append(gm) or gm.forward)
    for _ in range(CALLS):
        assert torch.equal(compiled(x_()), x_() * 2 + 1)
    assert len(seen) == 2


def test_fullgraph_refuses_it() -> None:
    with pytest.raises(fineline.errors.FinelineError, match="breakpoint"):
        fineline.compile(stopping, backend="eager", fullgraph=True)(x_())
