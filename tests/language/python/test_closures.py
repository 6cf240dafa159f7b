"""Closures, cells, nonlocal, global writes, recursion, lambdas and defaults."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()
COUNTER = 0
LOG: list[Any] = []
SCALE = {"a": 2.0, "b": 3.0}
LAST: Any = None


@table.snippet()
def make_adder_inside(x, y):
    def adder(n):
        return lambda v: v + n

    return adder(y)(x), adder(2)(x)


@table.snippet()
def nonlocal_counter_inside(x):
    n = 0

    def bump():
        nonlocal n
        n += 1
        return x * n

    return bump() + bump(), n


@table.snippet()
def two_closures_share_a_cell(x):
    value = x

    def put(v):
        nonlocal value
        value = v

    def get():
        return value

    put(get() * 2)
    put(get() + 1)
    return get()


@table.program(recompiles=(1, 2))
def closure_counter_outside() -> Any:
    n = 0

    def fn(x):
        nonlocal n
        n += 1
        return x * n

    return fn


@table.program()
def closure_tensor_replaced_by_the_call() -> Any:
    running = torch.zeros(3, 4)

    def fn(x):
        nonlocal running
        running = running * 0.9 + x
        return running.mean()

    return fn


@table.program(change={2: lambda fn: fn.__closure__[0].cell_contents.append(1)}, recompiles=(2,))
def closure_list_grows() -> Any:
    weights = [1, 2]

    def fn(x):
        return sum(x * w for w in weights)

    return fn


@table.program()
def returned_closure_keeps_its_cell() -> Any:
    def fn(x):
        total = x.sum()

        def later(k=2):
            nonlocal total
            total = total * k
            return total

        return later, later()

    return fn


@table.program()
def global_counter_written() -> Any:
    global COUNTER, LAST
    COUNTER, LAST = 0, None

    def fn(x):
        global LAST
        LAST = x + 1
        return LAST * 2

    return fn


@table.program(recompiles=(1, 2))
def global_int_incremented() -> Any:
    global COUNTER
    COUNTER = 0

    def fn(x):
        global COUNTER
        COUNTER += 1
        return x * COUNTER

    return fn


@table.program(recompiles=(1,))  # the list is empty before the first call
def global_list_appended() -> Any:
    LOG.clear()

    def fn(x):
        y = x.exp()
        LOG.append(y)
        del LOG[:-1]
        return y - 1

    return fn


@table.program(change={1: lambda fn: SCALE.update(a=5.0), 2: lambda fn: SCALE.update(a=2.0)}, recompiles=(1,))
def global_dict_changes() -> Any:
    SCALE.update(a=2.0, b=3.0)

    def fn(x):
        return {key: x * value for key, value in SCALE.items()}

    return fn


@table.program()
def global_created_and_deleted() -> Any:
    globals().pop("MADE_INSIDE", None)

    def fn(x):
        global MADE_INSIDE
        MADE_INSIDE = x * 3
        y = MADE_INSIDE + 1
        del MADE_INSIDE
        return y, "MADE_INSIDE" in globals()

    return fn


@table.snippet()
def unbound_local(x):
    y = x * 2
    if len(y) > 100:
        z = 1
    try:
        return y + z
    except UnboundLocalError as error:
        return y - 1, str(error), error.name if hasattr(error, "name") else None


@table.snippet()
def unbound_free_variable(x):
    def inner():
        return x * later

    try:
        inner()
    except NameError as error:
        text = str(error)
    later = 3
    return inner(), text


@table.snippet()
def name_error(x):
    try:
        return x + not_defined_anywhere  # noqa: F821
    except NameError as error:
        return x + 1, error.name, str(error)


@table.snippet()
def delete_a_local(x):
    y = x + 1
    keep = y
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError:
        return keep * 2, sorted(locals())


@table.snippet()
def locals_read(x):
    scale = 2
    names = sorted(locals())
    space = locals()
    return x * space["scale"], names


@table.snippet()
def recursion_over_a_list(x):
    def total(values):
        return values[0] if len(values) == 1 else values[0] + total(values[1:])

    return total([x * i for i in range(1, 6)])


@table.snippet()
def recursion_over_a_tree(x):
    def walk(tree):
        if isinstance(tree, dict):
            return {key: walk(value) for key, value in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(walk(value) for value in tree)
        return tree * 2

    return walk({"a": [x, (x + 1, x - 1)], "b": {"c": x.sum(), "d": 3}})


@table.snippet()
def mutual_recursion(x):
    def even(n):
        return x * 2 if n == 0 else odd(n - 1)

    def odd(n):
        return x * 3 if n == 0 else even(n - 1)

    return even(7), odd(6), even(4)


@table.snippet()
def deep_calls(x):
    def down(n):
        return x if n == 0 else down(n - 1) + 1

    return down(120)


@table.snippet()
def lambda_defaults(x):
    fs = [lambda v, k=k, *, s=1: v * k + s for k in range(3)]
    return [f(x) for f in fs], fs[2](x, 5, s=2)


@table.snippet()
def mutable_default_inside(x):
    def collect(v, into=[]):  # noqa: B006
        into.append(v.sum())
        return into

    collect(x)
    second = collect(x * 2)
    return second, len(collect.__defaults__[0])


@table.program(recompiles=(1, 2))
def mutable_default_outside() -> Any:
    def fn(x, seen=[]):  # noqa: B006
        seen.append(len(seen))
        return x * len(seen)

    return fn


@table.program(change={1: lambda fn: setattr(fn, "scale", 4), 2: lambda fn: setattr(fn, "scale", 2)}, recompiles=(1,))
def function_attribute_read() -> Any:
    def fn(x):
        return x * fn.scale

    fn.scale = 2  # type: ignore[attr-defined]
    return fn


@table.program(recompiles=(1, 2))
def function_attribute_written() -> Any:
    def fn(x):
        fn.calls += 1
        return x * 2 + fn.calls

    fn.calls = 0  # type: ignore[attr-defined]
    return fn


@table.snippet()
def function_made_and_inspected(x):
    def helper(a, b=2, *args, c, d=4, **kw):
        "Adds."
        return a * b + c + d

    return helper(x, c=1), helper.__name__, helper.__doc__, helper.__defaults__, helper.__kwdefaults__, helper.__code__.co_varnames


@table.snippet()
def decorator_inside(x):
    def times(n):
        def wrap(f):
            def inner(*args, **kwargs):
                return f(*args, **kwargs) * n

            return inner

        return wrap

    @times(2)
    @times(3)
    def f(v, k=1):
        return v + k

    return f(x), f(x, k=5)


@table.program(args=lambda i: (t(i),), change={2: lambda s: s.append(3)})
def closure_over_a_tensor_list_unread() -> Any:
    unread = [1]

    def fn(x):
        def never():
            return unread

        return x.relu(), never is None

    return fn, unread


CODE = compile("n * 2", "<code>", "eval")


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def names_for_code_that_is_run(x, n):
    found = [x * eval("n + 1"), eval(CODE), eval("sorted(locals())"), eval("m", {"m": n}), eval("n + m", None, {"n": n, "m": 1})]
    exec("made = n * 2")
    exec("there = 1", {}, found[-1:] and {})
    found += [locals()["made"], locals().get("there"), sorted(vars()), dir(), [eval("n", {"n": v}) for v in range(n)]]

    class Body:
        size = n
        twice = eval("size * 2")
        exec("thrice = size * 3")
        names = sorted(k for k in dir() if not k.startswith("__"))

    return found, Body.twice, Body.thrice, Body.names


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def names_of_the_caller_of_what_c_calls(x, n):
    found = [x * 2, list(map(eval, ["x * n"])), next(map(eval, ["n"])), functools.reduce(lambda a, b: eval("a + b"), [n, 1])]
    found += [sorted(["n", "1"], key=eval), max(["n", "1"], key=eval), [*filter(eval, ["n", "n - n"])], [*map(len, map(dir, [x.shape]))]]
    return found, max([n], key=lambda v: eval("v")), list(map(lambda _: sorted(locals()), [1])), sorted("n", key=lambda _: len(dir()))


@table.snippet(args=lambda place: (t(place), place + 3), recompiles=(1, 2), min_graphs=0)
def names_of_the_caller_of_what_c_calls_after_a_long_loop(x, n):
    y = x * 2
    for _ in range(40_000):
        pass
    return y, list(map(eval, ["x * n"])), next(map(eval, ["n"])), sorted(["n", "1"], key=eval), max(["n", "1"], key=eval), [*filter(eval, ["n"])]


@table.snippet(breaks=True, args=lambda place: (t(place), place + 3), recompiles=(1, 2))
def texts_of_code_that_vary(x, n):
    c, found = 5, []
    for op in ("<", ">", "=="):
        found.append(eval("c %s n" % op))
        exec(f"found.append(c {op} 5)")
    shown = str(x.sum())
    return x + 1, found, eval(f"'{shown}', n")


@table.snippet()
def one_dict_of_local_names(x):
    first = locals()
    later = x * 2
    before = sorted(first)
    again = locals()
    del later
    return before, again is first, sorted(first), sorted(locals()), first["x"] is x


def _set_again(state):
    state["set"](1)
    globals()["DELETED"] = 1


@table.program(calls=4, change={place: lambda state, place=place: state["set"](f"text {place}") for place in range(1, 4)}, max_graphs=1)
def a_variable_that_is_deleted_whatever_it_contains():
    v = "text"

    def put(value):
        nonlocal v
        v = value

    def fn(x):
        nonlocal v
        del v
        return x * 2

    return fn, {"set": put}


@table.program(calls=4, change={2: _set_again}, recompiles=(1, 2, 3))
def variables_that_are_deleted():
    v = 1

    def put(value):
        nonlocal v
        v = value

    def fn(x):
        nonlocal v
        global DELETED
        told = []
        try:
            del v
            told.append(v if x is None else "deleted")
        except NameError as e:
            told.append(str(e))
        try:
            del DELETED
            told.append("deleted")
        except NameError as e:
            told.append(str(e))
        return x * len(told), told

    globals().pop("DELETED", None)
    return fn, {"set": put}


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_closures(program: Program, twin: str) -> None:
    check(program, twin)
