"""Tensors that the user's code has dropped go at graph breaks as soon as in eager code, in the capturing call and in later ones."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline

SEEN: list[weakref.ref] = []
ALIVE: list[int] = []
PROGRAMS: dict[str, Callable] = {}


class Holder:
    held: Any = None


SHARED = Holder()


@pytest.fixture(autouse=True)
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@fineline.disable
def look(t):
    """Notes how many of the tensors that were ever given to it are alive."""
    SEEN.append(weakref.ref(t))
    count()
    return float(t.detach()[0])


@fineline.disable
def count():
    ALIVE.append(sum(ref() is not None for ref in SEEN))


@fineline.disable
def fail(t):
    SEEN.append(weakref.ref(t))
    count()
    raise ValueError


@program
def variables_that_are_deleted(x):
    y = (x * 2).sin().cos(); look(y); s = y.sum(); del y
    y = (x * 3).sin().cos(); look(y); s = s + y.sum(); del y
    y = (x * 4).sin().cos(); look(y); s = s + y.sum(); del y
    count()
    return s


@program
def variables_of_a_loop(x):
    s = x.sum()
    for i in range(6):
        y = (x * i).sin().cos()
        look(y)
        s = s + y.sum()
        del y
    count()
    return s


def helper(x, k):
    y = (x * k).sin().cos()
    look(y)
    return y.sum()


@program
def variables_of_functions_that_return(x):
    s = helper(x, 2) + helper(x, 3) + helper(x, 4)
    count()
    return s


@program
def variables_that_are_assigned_anew(x):
    for i in range(5):
        x = (x * 1.1).sin().cos() + i
        look(x)
    count()
    return x


@program
def items_of_a_list(x):
    held = [x * 2, x * 3]
    look(held[0]); look(held[1])
    held.clear()
    y = x + 1
    look(y)
    return y


@program
def attributes_of_a_new_object(x):
    h = Holder()
    h.held = x + 1; look(h.held)
    h.held = h.held * 2; look(h.held)
    h.held = h.held * 2; look(h.held)
    return h.held


@program
def attributes_of_an_old_object(x):
    SHARED.held = x + 1; look(SHARED.held)
    SHARED.held = SHARED.held * 2; look(SHARED.held)
    SHARED.held = SHARED.held * 2; look(SHARED.held)
    held, SHARED.held = SHARED.held, None
    return held


@program
def in_a_try_statement(x):
    y = x + 1
    try:
        look(y); y = y * 2; look(y); y = y * 2; look(y)
        raise ValueError
    except ValueError:
        count()
        y = y + 1
    return y


@program
def in_front_of_an_exception(x):
    for i in range(3):
        y = x + i
        try:
            fail(y)
        except ValueError:
            y = y * 2
        look(y)
    del y
    count()
    return x


@program
def what_a_number_was_read_of(x):
    y = x.sin(); look(y); n = y.sum().item()
    y = y * n; look(y); n = y.sum().item()
    y = y * n; look(y)
    return y


@program
def what_a_generator_gives(x):
    for v in (x * i for i in range(4)):
        look(v)
    return x + 1


@program
def keyword_arguments(x):
    y = x.sin(); look(t=y)
    y = y * 2; look(t=y)
    y = y + 1; look(t=y)
    return y


@program
def several_outputs_of_a_graph(x):
    a, b = x.sin(), x.cos()
    look(a); look(b)
    c = a + b
    del a, b
    look(c)
    return c


@program
def between_breaks_of_other_kinds(x):
    y = x.sin(); look(y); print(end="")
    y = y * 2; look(y); fineline.graph_break()
    y = y * 2; look(y)
    return y


@program
def variables_that_are_bound_in_a_caller(x):
    y = x * 2
    s = helper(y, 2) + helper(y, 3)
    look(y)
    return s


@program
def in_a_closure(x):
    y = x * 2

    def inner():
        look(y)
        return y.sum()

    s = inner()
    y = x * 3
    s = s + inner()
    del y
    count()
    return s


@program
def behind_nested_breaks(x):
    def outer(x, k):
        y = x * k
        s = helper(y, k)
        del y
        count()
        return s

    s = outer(x, 2) + outer(x, 3)
    count()
    return s


@program
def without_gradients(x):
    with torch.no_grad():
        y = x.sin(); look(y); s = y.sum(); del y
        y = x.cos(); look(y); s = s + y.sum(); del y
        count()
    return s


@program
def in_front_of_an_exception_of_an_inner_function(x):
    def inner(x, k):
        y = x * k
        fail(y)

    for k in range(3):
        try:
            inner(x, k)
        except ValueError:
            count()
        count()
    return x + 1


@program
def with_gradients(x):
    w = torch.ones(4, requires_grad=True)
    for _ in range(3):
        y = (x * w).sin()
        look(y)
        y.sum().backward()
        del y
    count()
    return w.grad


KINDS: dict[str, dict[str, Any]] = {
    "live": {},
    "dynamic": {"dynamic": True},
    "reference": {"options": {"evaluator": "reference"}},
    "aot_eager": {"backend": "aot_eager"},
}

# Behind AOTAutograd, which takes the longest, they run in the second half of CI.
WAYS = [pytest.param(kind, marks=[pytest.mark.later] if kind == "aot_eager" else []) for kind in KINDS]


def alive_in(fn: Callable) -> list[int]:
    SEEN.clear()
    ALIVE.clear()
    fn(torch.ones(4))
    return list(ALIVE)


def rebound_in_an_except_clause(x):
    y = x + 1
    try:
        look(y); y = y * 2; look(y); y = y * 2; look(y)
        raise ValueError
    except ValueError:
        y = y + 1
        look(y)
    return y


@pytest.mark.parametrize("kind", WAYS)
def test_a_variable_rebound_while_an_exception_is_handled(kind: str) -> None:
    """The exception's traceback shows the frame that handles it, and keeps none of the variables that this frame has dropped."""
    eager = alive_in(rebound_in_an_except_clause)
    compiled = fineline.compile(rebound_in_an_except_clause, **{"backend": "eager", **KINDS[kind]})
    for _ in range(4):
        assert alive_in(compiled) == eager


def by_raise(y):
    raise ValueError("no")


def by_an_index(y):
    return [][3]


def by_an_operator(y):
    return y.reshape(7)


def by_a_name(y):
    return y.no_such_attribute


RAISING = {fn.__name__: fn for fn in (by_raise, by_an_index, by_an_operator, by_a_name)}


def handled_at_once(x, fail):
    y = x + 1
    try:
        look(y)
        fail(y)
    except Exception:
        del y
        count()
    return x * 2


def handled_with_its_name(x, fail):
    try:
        y = x + 1
        look(y)
        fail(y)
    except Exception as e:
        del y
        count()
        del e
        count()
    return x * 2


def handled_inside_of_a_handler(x, fail):
    try:
        y = x + 1
        look(y)
        fail(y)
    except Exception:
        try:
            fail(y)
        except Exception:
            del y
            count()
    return x * 2


def handled_in_a_loop(x, fail):
    for i in range(3):
        try:
            y = x + i
            look(y)
            fail(y)
        except Exception:
            y = None
            count()
    return x * 2


def raised_again(x, fail):
    try:
        try:
            y = x + 1
            look(y)
            fail(y)
        except Exception as e:
            raise KeyError from e
    except KeyError:
        del y
        count()
    return x * 2


def behind_a_finally(x, fail):
    try:
        try:
            y = x + 1
            look(y)
            fail(y)
        finally:
            del y
            count()
    except Exception:
        count()
    return x * 2


def raised_by_the_code_itself(x, fail):
    try:
        y = x + 1
        look(y)
        if fail:
            raise ValueError
    except ValueError:
        del y
        count()
    return x * 2


HANDLED = (
    handled_at_once, handled_with_its_name, handled_inside_of_a_handler, handled_in_a_loop, raised_again, behind_a_finally, raised_by_the_code_itself,
)  # fmt: skip


@pytest.mark.parametrize("fail", RAISING)
@pytest.mark.parametrize("fn", HANDLED, ids=lambda fn: fn.__name__)
def test_variables_dropped_in_handlers(fn: Callable, fail: str) -> None:
    eager = alive_in(lambda x: fn(x, RAISING[fail]))
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(4):
        found = alive_in(lambda x: compiled(x, RAISING[fail]))
        assert len(found) == len(eager) and all(a <= b for a, b in zip(found, eager, strict=True)), (found, eager)


@pytest.mark.parametrize("kind", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_dropped_goes_as_soon_as_in_eager_code(name: str, kind: str) -> None:
    eager = alive_in(PROGRAMS[name])
    compiled = fineline.compile(PROGRAMS[name], **{"backend": "eager", **KINDS[kind]})
    for call in range(4):
        found = alive_in(compiled)
        assert len(found) == len(eager)
        assert all(a <= b for a, b in zip(found, eager, strict=True)), (call, found, eager)


def test_iterations_that_share_programs_drop_what_they_have_made() -> None:
    """A call that captures behind a graph break holds what was alive there until it ends; a call that fits its programs holds nothing."""

    def fn(x, n):
        for i in range(n):
            x = x + i
            look(x)
        return x

    def run(f, n):
        SEEN.clear()
        ALIVE.clear()
        f(torch.ones(4), n)
        return list(ALIVE)

    compiled = fineline.compile(fn, backend="eager")
    for n in (3, 5, 8, 4, 12):
        assert max(run(compiled, n)) <= 2
        assert run(compiled, n) == run(fn, n)


def test_a_traceback_shows_no_dropped_value_and_keeps_the_others() -> None:
    """The entry of the frame that handles the exception has the variables of now; none that it has dropped, and none that is out of date."""
    shown: list[dict[str, Any]] = []

    def show(error: BaseException) -> None:
        tb = error.__traceback__
        assert tb is not None
        shown.append({name: v.tolist() if isinstance(v, torch.Tensor) else v for name, v in tb.tb_frame.f_locals.items() if name != "e"})

    def fn(x: torch.Tensor) -> torch.Tensor:
        y, unchanged = x + 1, "unchanged"
        try:
            raise ValueError
        except ValueError as e:
            y = y * 2
            show(e)
            y = y + 1
            show(e)
        return y

    fineline.compile(fn, backend="eager")(torch.ones(1))
    assert [of["y"] for of in shown] == [[4.0], [5.0]]
    assert shown[1] == {"x": [1.0], "y": [5.0], "unchanged": "unchanged", "show": show}
