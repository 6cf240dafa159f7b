"""Single names asked of a mappingproxy: of a signature's parameters, of what a class holds itself, of a dict shown to all."""

from __future__ import annotations

import inspect
from types import MappingProxyType, SimpleNamespace

import pytest

import fineline
from tests.oracle import Program, Table, check, t

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
    made = program.make()
    fn = made[0] if isinstance(made, tuple) else made
    assert fineline.explain(fn)(t(0)).breaks == []
