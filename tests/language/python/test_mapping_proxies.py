"""Single names asked of a mappingproxy: of a signature's parameters, of what a class holds itself, of a dict shown to all."""

from __future__ import annotations

import inspect
from types import MappingProxyType, SimpleNamespace

import pytest

from fineline import graph_break
from tests.oracle import Program, Table, captured_whole, check

table = Table()


def given(a, b=2, *, closure=None):
    return a * b


@table.program(max_graphs=1)
def parameters_asked_for():
    def fn(x):
        y = x.sin()
        if "closure" in inspect.signature(given).parameters:
            y = y * 2
        shown = inspect.signature(given).parameters
        kw = {"b": 3, "c": 4}
        taken = {k: v for k, v in kw.items() if k in inspect.signature(given).parameters}
        found = shown["b"].default, shown.get("a").name, shown.get("c"), shown.get("c", 1), "c" not in shown, len(shown), list(shown)
        return given(y, **taken), found, [p.kind for p in shown.values()]

    return fn


@table.program(
    calls=4, max_graphs=3, recompiles=(1, 3),
    change={1: lambda s: s.fn.__kwdefaults__.update(closure=3), 3: lambda s: setattr(s.fn, "__signature__", inspect.signature(lambda c: c))},
)  # fmt: skip
def parameters_that_change():
    def function(a, *, closure=None):
        return a

    state = SimpleNamespace(fn=function)

    def fn(x):
        shown = inspect.signature(state.fn).parameters
        return x * 2, "closure" in shown, "c" in shown, shown["closure"].default if "closure" in shown else 1

    return fn, state


class Base:
    above = 1


@table.program(
    calls=7, max_graphs=6, recompiles=(2, 3, 4, 5, 6),
    change={
        2: lambda c: setattr(c, "later", 1), 3: lambda c: setattr(c, "own", 7), 4: lambda c: delattr(c, "later"),
        5: lambda c: setattr(c, "method", lambda self: 4), 6: lambda c: delattr(c, "own"),
    },
)  # fmt: skip
def names_of_a_class():
    class Own(Base):
        own = 5
        kept: float = 2.5

        def method(self):
            return 3

    def missing(space, name):
        try:
            return space[name]
        except KeyError as e:
            return str(e)

    def fn(x):
        y = x * 2 if "later" in Own.__dict__ else x * 3
        space = vars(Own)
        asked = [name in Own.__dict__ for name in ("own", "above", "later", "__init__")], "own" not in vars(Own)
        got = space.get("own"), space.get("above", 2), Own.__dict__.get("above"), Own.__dict__["kept"], missing(space, "own"), missing(space, "none")
        return y.sin(), asked, got, Own.__dict__["method"](None), "own" in space, [k for k in Own.__mro__[:-1] if "own" in k.__dict__] == []

    return fn, Own


@table.program(breaks=True, recompiles=(1, 2))
def names_of_a_class_that_the_call_writes():
    class Own:
        count = 1

    def fn(x):
        before = Own.__dict__["count"]
        Own.count += 1
        return x * 2, before, Own.__dict__["count"], "count" in vars(Own), Own.__dict__.get("count")

    return fn, Own


@table.program(breaks=True)
def namespaces_across_a_break():
    class Own:
        count = 1

    def fn(x):
        space = Own.__dict__
        y = x.sin() * 2 if "count" in space else x
        graph_break()
        return y.cos(), space["count"], len(space), sorted(k for k in space if k[0] != "_"), type(space)

    return fn


@table.program(
    calls=4, max_graphs=2, recompiles=(2,), change={1: lambda d: d.update(unread=3), 2: lambda d: d.update(n=5), 3: lambda d: d.pop("unread")}
)
def a_dict_shown_to_all():
    held = {"n": 2, "items": [1, {2}]}
    shown = MappingProxyType(held)

    def fn(x):
        return x * shown["n"], "none" in shown, shown.get("none", 1), "items" in shown

    return fn, held


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_namespaces(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("program", [p for p in table.programs if not p.breaks], ids=str)
def test_in_one_graph(program: Program) -> None:
    captured_whole(program)
