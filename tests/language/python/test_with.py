"""with statements and contextlib."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()


class Logged:
    def __init__(self, log: list[Any], name: str, swallow: Any = ()) -> None:
        self.log, self.name, self.swallow = log, name, swallow

    def __enter__(self) -> Any:
        self.log.append(f"enter {self.name}")
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self.log.append(f"exit {self.name} {kind.__name__ if kind else None} {error!r} {trace is not None}")
        return kind is not None and issubclass(kind, self.swallow)


@table.snippet()
def enter_and_exit(x):
    log = []
    with Logged(log, "a") as a, Logged(log, "b"):
        y = x * len(log)
    return y + 1, log, a.name


@table.snippet()
def exception_passes_through(x):
    log = []
    try:
        with Logged(log, "a"):
            y = x * 2
            raise ValueError("through")
    except ValueError as error:
        return y, log, str(error)


@table.snippet()
def exception_is_swallowed(x):
    log = []
    with Logged(log, "outer"), Logged(log, "inner", KeyError):
        y = x + 1
        {}["nope"]
        y = y * 100
    return y, log


@table.snippet()
def return_inside_with(x):
    log = []

    def f():
        with Logged(log, "f"):
            return x * 2

    return f(), log


@table.snippet()
def break_and_continue_inside_with(x):
    log = []
    for i in range(4):
        with Logged(log, str(i)):
            if i == 1:
                continue
            if i == 2:
                break
            x = x * 2
    return x, log


@table.snippet()
def exit_raises(x):
    class Bad(Logged):
        def __exit__(self, *info):
            raise KeyError("from exit")

    try:
        with Bad([], "bad"):
            raise ValueError("body")
    except KeyError as error:
        return x + 3, repr(error.__context__)


@table.snippet()
def enter_raises(x):
    class Bad(Logged):
        def __enter__(self):
            raise KeyError("from enter")

    log = []
    try:
        with Logged(log, "first"), Bad(log, "bad"):
            x = x * 100
    except KeyError as error:
        return x - 1, log, error.args


@table.snippet()
def not_a_context_manager(x):
    try:
        with x[0]:
            pass
    except TypeError as error:
        return x * 2, str(error)


@table.snippet()
def generator_context_manager(x):
    log = []

    @contextlib.contextmanager
    def scope(name, factor=2):
        log.append(f"in {name}")
        try:
            yield x * factor
        finally:
            log.append(f"out {name}")

    with scope("a") as a, scope("b", factor=3) as b:
        y = a + b
    return y, log


@table.snippet()
def generator_context_manager_catches(x):
    @contextlib.contextmanager
    def catching(*kinds):
        box = []
        try:
            yield box
        except kinds as error:
            box.append(repr(error))

    with catching(ValueError, KeyError) as box:
        x = x.sin()
        raise KeyError("inside")
    try:
        with catching(OSError):
            raise ValueError("other")
    except ValueError as error:
        box.append(str(error))
    return x, box


@table.snippet()
def context_manager_as_decorator(x):
    log = []

    @contextlib.contextmanager
    def noted(name):
        log.append(name)
        yield
        log.append("end")

    @noted("f")
    def f(v):
        return v * 2

    return f(x) + f(x + 1), log


@table.snippet()
def suppress(x):
    with contextlib.suppress(ZeroDivisionError, KeyError):
        x = x + 1
        1 / 0  # noqa: B018
        x = x * 100
    return x * 2


@table.snippet()
def nullcontext(x):
    with contextlib.nullcontext(x * 2) as y, contextlib.nullcontext() as nothing:
        return y + 1, nothing


@table.snippet()
def exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        values = [stack.enter_context(Logged(log, str(i))) for i in range(3)]
        stack.callback(log.append, "callback")
        y = x * len(values)
    return y, log


@table.snippet()
def exit_stack_pop_all_and_errors(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Logged(log, "kept"))
        later = stack.pop_all()
    log.append("between")
    later.close()
    with contextlib.ExitStack() as stack:
        stack.push(lambda kind, error, trace: log.append(str(error)) or True)
        raise ValueError("swallowed by the stack")
    return x.cos(), log


@table.snippet()
def closing(x):
    class Resource:
        closed = False

        def close(self):
            self.closed = True

    with contextlib.closing(Resource()) as resource:
        y = x + (0 if resource.closed else 1)
    return y, resource.closed


@table.snippet(breaks=True)
def redirect_stdout(x):
    out = io.StringIO()
    y = x * 2
    with contextlib.redirect_stdout(out):
        print("hidden")
    return y + 1, out.getvalue()


@table.snippet(grad=True)
def grad_modes(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    c = x * 4
    with torch.set_grad_enabled(False):
        d = x * 5
    return a, b, c, d, [v.requires_grad for v in (a, b, c, d)], torch.is_grad_enabled()


@table.snippet(grad=True)
def grad_mode_decorators(x):
    @torch.no_grad()
    def frozen(v):
        return v * 2, torch.is_grad_enabled()

    def plain(v):
        return v * 3

    y, mode = frozen(x)
    return y, mode, torch.no_grad()(plain)(x).requires_grad, plain(x)


@table.snippet()
def inference_mode(x):
    with torch.inference_mode():
        y = x * 2
        inside = torch.is_inference_mode_enabled()
    return y, y.is_inference(), inside, x + 1


@table.snippet()
def autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y.T
        with torch.autocast("cpu", enabled=False):
            b = x @ y.T
    return a, b, a.dtype, x @ y.T


@table.snippet(grad=True)
def grad_mode_left_by_an_exception(x):
    try:
        with torch.no_grad():
            y = x * 2
            raise ValueError
    except ValueError:
        return x * 3, y, torch.is_grad_enabled()


@table.snippet(grad=True)
def grad_mode_set_by_hand(x):
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(before)
    return y, x * y


@table.program(change={1: lambda s: s.update(on=True), 2: lambda s: s.update(on=False)}, recompiles=(1,))
def context_manager_chosen_at_run_time() -> Any:
    state = {"on": False}

    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16) if state["on"] else contextlib.nullcontext():
            return x @ x.T

    return fn, state


@table.program(args=lambda i: (t(i),))
def context_manager_given_from_outside() -> Any:
    log: list[str] = []
    manager = Logged(log, "outside")

    def fn(x):
        with manager as m:
            return x * len(m.name)

    return fn, manager


@table.program(breaks=True, recompiles=(1,))
def inference() -> Any:
    @torch.inference_mode()
    def inner(x):
        return x * 3

    @torch.inference_mode(False)
    def back(x):
        return x * 5

    m = torch.inference_mode()

    def fn(x):
        with torch.inference_mode():
            y = x * 2
            z = inner(y) + back(torch.ones(2))[0]
            flags = torch.is_inference_mode_enabled(), torch.is_grad_enabled(), y.is_inference()
            with torch.inference_mode(False):
                w = x * 2
        with torch.inference_mode(mode=False):
            v = x + 1
        try:
            with torch.inference_mode():
                raise ValueError
        except ValueError:
            pass
        return y, z, w, inner(x), flags, v, [q.is_inference() for q in (y, z, w, v)], x + 1

    return fn


@table.program(breaks=True, min_graphs=0)
def inference_kept_object() -> Any:
    m = torch.inference_mode()

    def fn(x):
        with m:
            y = x * 2
        with m:
            y = y * 2
        return y

    return fn


@table.program(breaks=True, recompiles=(1,))
def inference_break() -> Any:
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            fineline.graph_break()
            y = y * 2
        return y + 1, y.is_inference(), x * 2

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_with(program: Program, twin: str) -> None:
    check(program, twin)
