"""Functions in Python that compute plain values of plain values: CPython runs them, and nothing tells that from a run by the interpreter."""

from __future__ import annotations

import builtins
import signal
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from fineline.bytecode.version import CURRENT
from fineline.errors import FinelineError
from fineline.interp.interpreter import Interpreter
from tests.oracle import Table, check, t

table = Table()
SPACE: dict[str, Any] = {}
NUMBER = 3
SEEN: list[Any] = []


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def total(n):
    s = 0
    for i in range(n):
        s += i * 2 % 7
    return s


def squares(n):
    return sum([k * k for k in range(n) if k % 2]) + len({k % 3 for k in range(n)}) + len({k: k for k in range(n)})


def summed(n):
    return sum(k * 0.5 for k in range(n)), any(k > 3 for k in range(n))


def words(n, between="-"):
    parts = []
    for k, c in enumerate("abcdef"[:n]):
        parts.append(f"{c}{k:>3}" + str(k))
    return between.join(parts).upper() + ",".join(str(k) for k in range(n))


def paired(n):
    out = {}
    for a, b in zip(range(n), sorted(range(n), reverse=True)):
        out[a] = out.get(b, 0) + b
    return tuple(out.items()), sorted(out.values(), key=abs)[0]


def closed(n):
    return [n + k for k in range(3)][-1]


def checked(n):
    if not isinstance(n, int) or isinstance(n, str):
        raise TypeError
    if n > 100:
        raise ValueError(f"{n} is too much")
    return divmod(n, 3), 1.5**n, -n, n in (1, 2), round(n / 3, 2), complex(n, 1), repr(n), None


def inverted(n):
    return ~n


def scaled(n):
    return n * NUMBER


def of_a_list(n):
    values = [n]
    values.append(n + 1)
    return values


PURE = [fib, is_even, total, squares, summed, words, paired, closed, checked, scaled]
# From Python 3.12 on, an inverted bool warns.
PURE += [] if "bools" in CURRENT.warns_of else [inverted]


@pytest.fixture
def frames(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The functions that get a frame of the interpreter's."""
    seen: list[str] = []
    push = Interpreter.push_function

    def push_function(self: Interpreter, f: Any, fn: Any, *args: Any) -> Any:
        seen.append(fn.__name__)
        return push(self, f, fn, *args)

    monkeypatch.setattr(Interpreter, "push_function", push_function)
    return seen


@pytest.mark.parametrize("function", PURE, ids=lambda fn: fn.__name__)
def test_cpython_runs_it(frames: list[str], function: Callable[[int], Any]) -> None:
    def fn(x):
        return x + 1, function(5), function(6)

    x = t(0)
    compiled = fineline.compile(fn, backend="eager")
    for _ in range(2):
        (y, *rest), (expected, *values) = compiled(x), fn(x)
        assert torch.equal(y, expected) and repr(rest) == repr(values)
    assert frames == ["fn"]


def address(n):
    return str(enumerate([n])) != ""


def told_apart(n):
    made = zip([n])
    return made is made


def a_function(n):
    return fib is not None and n


def a_lambda(n):
    return sorted([n, 1], key=lambda k: -k)[0]


def prints(n):
    print(n, file=None if n else None, end="")
    return n


def handles(n):
    try:
        return 1 // n
    except ZeroDivisionError:
        return 0


def encodes(n):
    return len("abc".encode("ascii")) + n


def of_a_global_list(n):
    return len(SEEN) + n


def writes_a_global(n):
    global NUMBER
    NUMBER = NUMBER + 0
    return n


def imports(n):
    import math

    return math.floor(n)


def formats(n):
    return len("{0.append}".format([n])) > 0


def given_a_function(n):
    return generator_of(n) is not None


def generator_of(n):
    yield n


def with_keyword(n, *, k=1):
    return n + k


def with_attributes(n):
    return n


with_attributes.note = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "function",
    [
        address, told_apart, a_function, a_lambda, prints, handles, encodes, of_a_global_list, writes_a_global, imports, formats, given_a_function,
        with_keyword, with_attributes,
    ],
    ids=lambda fn: fn.__name__,
)  # fmt: skip
def test_the_interpreter_runs_it(frames: list[str], function: Callable[[int], Any]) -> None:
    def fn(x):
        return x + 1, function(5)

    assert fineline.compile(fn, backend="eager")(t(0))[1] == function(5)
    assert function.__name__ in frames


def test_a_result_that_can_change_is_thrown_away(frames: list[str]) -> None:
    def fn(x):
        values = of_a_list(1)
        values.append(x)
        return values

    compiled = fineline.compile(fn, backend="eager")
    first, second = compiled(t(0)), compiled(t(0))
    assert first[:2] == second[:2] == [1, 2] and first is not second and frames == ["fn", "of_a_list"]


def test_a_long_tuple_is_not_looked_through(frames: list[str]) -> None:
    def fn(x):
        values = (*range(1000),)
        return x + at(values, 3) + at((1, 2), 0)

    fineline.compile(fn, backend="eager")(t(0))
    assert frames == ["fn", "at"]


def at(values, k):
    return values[k]


def test_tracers_see_every_call(frames: list[str]) -> None:
    def fn(x):
        return x + total(3)

    before = sys.getprofile()
    sys.setprofile(lambda *_: None)
    try:
        fineline.compile(fn, backend="eager")(t(0))
    finally:
        sys.setprofile(before)
    assert "total" in frames


def test_marks_of_other_things_do_not_matter(frames: list[str]) -> None:
    def other(n):
        return n

    marked = [fineline.forbid_in_graph(other), fineline.disable(other)]

    def fn(x):
        return x + fib(5) + total(4)

    fineline.compile(fn, backend="eager")(t(0))
    assert frames == ["fn"] and len(marked) == 2


@pytest.mark.parametrize("rule", ["disable", "forbid_in_graph"])
def test_rules_hold_for_what_is_called(rule: str) -> None:
    def inner(n):
        return n + 1

    def fn(x):
        return x + outer(3)

    marked = getattr(fineline, rule)(inner)

    def outer(n):
        return marked(n) * 2

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    with pytest.raises(FinelineError, match="inner"):
        compiled(t(0))


def test_what_a_signal_handler_raises_leaves_the_call() -> None:
    class Ended(Exception):
        pass

    def end(number, frame):
        raise Ended

    def endless(n):
        while n:
            n += 1
        return n

    def fn(x):
        return x + endless(1)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Ended):
            fineline.compile(fn, backend="eager")(t(0))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# -- under the oracle ---------------------------------------------------------------------------------------------------
@table.snippet()
def all_of_them(x):
    return x + fib(9), is_even(8), total(20), squares(9), summed(6), words(4), paired(4), checked(7), address(2), a_lambda(3)


@table.snippet(args=lambda i: (t(i), [3, 4, 3, 5][i]), calls=4, recompiles=(1, 3))
def a_number_that_varies(x, n):
    return x * total(n), words(n), n


@table.snippet(args=lambda i: (t(i), [300, 301, 300][i]), recompiles=(1,))
def a_large_number(x, n):
    return x * total(n)


@table.snippet(args=lambda i: (t(i, 2 + i % 2),), recompiles=(1,))
def a_size_that_varies(x):
    return x * fib(len(x)), total(x.shape[0])


@table.snippet(args=lambda i: (t(i), [True, 1, 1.0, 1][i]), calls=4, recompiles=(1, 2, 3))
def bool_int_and_float(x, n):
    return x + 1, repr(closed(n)), scaled(n)


@table.snippet(min_graphs=0)
def raises_and_is_handled(x):
    try:
        return x + checked(500)[0][0]
    except ValueError as e:
        tb, lines = e.__traceback__, []
        while tb is not None:
            lines.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))
            tb = tb.tb_next
        return x, str(e), lines[-1], len(e.args)


@table.snippet()
def raises_inside_a_handler(x):
    try:
        raise KeyError("first")
    except KeyError:
        try:
            checked(500)
        except ValueError as e:
            return x + 1, repr(e.__context__)


@table.snippet()
def raises_out_of_the_call(x):
    return x + checked("text")[0]


@table.snippet()
def wrong_arguments(x):
    told = []
    for args in ((), (1, 2), (1, 2, 3)):
        try:
            fib(*args)
        except TypeError as e:
            told.append(str(e))
    return x + 1, told


@table.snippet(min_graphs=0)
def recursion_without_an_end(x):
    def down(n):
        return deeper(n)

    try:
        down(1)
    except RecursionError as e:
        return x + 1, str(e)[:32]


def deeper(n):
    return deeper(n + 1)


@table.snippet(min_graphs=0)
def near_the_recursion_limit(x):
    try:
        return x + down_by(1, sys.getrecursionlimit())
    except RecursionError:
        return x - 1


def down_by(n, limit):
    return n if n >= limit else down_by(n + 1, limit)


def put(**values: Any) -> Callable[[Any], None]:
    """Changes the module's globals."""
    return lambda fn: globals().update(values)


@table.program(change={1: put(NUMBER=5), 3: put(NUMBER=3)}, calls=4, recompiles=(1, 3))
def a_global_changes() -> Any:
    globals()["NUMBER"] = 3
    return lambda x: x + scaled(2)


def replaced(n):
    return n + 1


def twice(n):
    return replaced(n) * 2


def replacement(n):
    return n + 100


ORIGINAL, CODE = replaced, replaced.__code__


@table.program(change={1: put(replaced=replacement), 2: put(replaced=ORIGINAL)}, recompiles=(1, 2))
def a_function_is_patched() -> Any:
    globals()["replaced"] = ORIGINAL
    ORIGINAL.__code__ = CODE
    return lambda x: x + twice(1)


@table.program(
    change={1: lambda fn: setattr(ORIGINAL, "__code__", replacement.__code__), 2: lambda fn: setattr(ORIGINAL, "__code__", CODE)},
    recompiles=(1,),
)
def code_is_replaced() -> Any:
    globals()["replaced"] = ORIGINAL
    ORIGINAL.__code__ = CODE
    return lambda x: x + twice(1)


def with_default(n, k=2):
    return n * k


@table.program(change={1: lambda fn: setattr(with_default, "__defaults__", (7,))}, recompiles=(1,))
def a_default_changes() -> Any:
    with_default.__defaults__ = (2,)
    return lambda x: x + with_default(3)


def shadowed_len(n):
    return len(range(n))


@table.program(change={1: put(len=lambda r: 42), 2: lambda fn: globals().pop("len")}, recompiles=(1, 2))
def a_builtin_is_shadowed() -> Any:
    globals().pop("len", None)
    return lambda x: x + shadowed_len(3)


@table.program(change={1: put(sum=lambda g: (type(g).__name__, list(g))[1]), 2: lambda fn: globals().pop("sum")}, recompiles=(1, 2))
def who_takes_a_generator_is_shadowed() -> Any:
    globals().pop("sum", None)
    return lambda x: (x + 1, summed(3))


@table.program(change={1: lambda fn: setattr(builtins, "abs_of", max)}, recompiles=(1,))
def builtins_get_another_function() -> Any:
    builtins.abs_of = min  # type: ignore[attr-defined]
    return lambda x: x + of_builtins(3)


def of_builtins(n):
    return abs_of(n, 1)  # type: ignore[name-defined]  # noqa: F821


@table.program(change={1: lambda fn: fn.set(9)}, recompiles=(1,))
def a_variable_around_it_changes() -> Any:
    return Around()


class Around:
    def __init__(self) -> None:
        n = 2

        def plus(k):
            return k + n

        def set_(value):
            nonlocal n
            n = value

        self.plus, self.set = plus, set_

    def __call__(self, x):
        return x + self.plus(1)


@table.snippet()
def what_the_call_itself_changes(x):
    global NUMBER
    n, told, before = 1, [], NUMBER

    def around(k):
        return k * n

    for k in range(3):
        n += k
        NUMBER = k
        told.append((around(2), scaled(2)))
    NUMBER = before
    return x + n, told


@table.snippet(min_graphs=0)
def the_call_itself_replaces_functions(x):
    told = []
    for other in (replacement, ORIGINAL):
        globals()["replaced"] = other
        told.append(twice(1))
    for defaults in ((5,), (2,)):
        with_default.__defaults__ = defaults
        told.append(with_default(3))
    return x + 1, told


@table.snippet()
def functions_made_in_the_call(x):
    told = []
    for k in range(4):

        def made(n, by=k):
            return n + by

        told.append(made(1))
        del made
    return x + 1, told


@table.snippet()
def an_equal_function_with_other_attributes(x):
    told = [total(3)]
    total.note = 1  # type: ignore[attr-defined]
    told.append((total(3), total.__dict__))
    del total.note  # type: ignore[attr-defined]
    return x + 1, told


@table.program(args=lambda i: (t(i), [1, 2, i]), recompiles=(1, 2))
def a_list_as_argument() -> Any:
    return lambda x, values: x + last(values)


def last(values):
    return values[-1]


@table.snippet()
def sets_of_texts(x):
    return x + 1, in_a_set("abcab"), frozen("abc") == frozenset("cab")


def in_a_set(text):
    return "".join(set(text)) == "".join(set(text)), len(set(text))


def frozen(text):
    return frozenset(text)


@table.snippet()
def formatted_floats(x):
    return x + 1, shown(0.1), shown(1e22), shown(float("inf")), shown(-0.0)


def shown(v):
    return f"{v} {v!r} {v:.3e} {v:>10.2f}", "%.17g" % v, str(v)


@table.snippet()
def a_warning_is_given_once(x):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warning(3)
    return x + 1, len(caught)


def warning(n):
    warnings.warn("once", stacklevel=1)
    return n


class Text(str):
    def __len__(self):
        return 77


@table.snippet()
def a_subclass_of_text(x):
    return x + length(Text("ab")), length("ab")


def length(text):
    return len(text)


@table.snippet()
def behind_an_operator_and_a_break(x):
    y = x * total(4)
    fineline.graph_break()
    return y + total(4) + scaled(2)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_pure_calls(program: Any, twin: str) -> None:
    check(program, twin)
