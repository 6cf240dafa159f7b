"""``explain`` and the events it shows: the user's places, counts that add up, words that help."""

from __future__ import annotations

import torch
from torch import nn

import fineline

X = torch.zeros(3)


@fineline.disable(reason="reads a file")
def load(x):
    return x + 1


def program(x):
    y = x * 2
    y = y.sin()
    y = load(y)
    y = y.cos()
    if y.sum() > 0:
        y = y * 3
    return y


LINE = program.__code__.co_firstlineno


def test_graphs_breaks_and_places() -> None:
    e = fineline.explain(program)(X)
    assert [(b.id, b.line - LINE) for b in e.breaks] == [("FL400", 3), ("FL502", 5)]
    assert all(b.file == __file__ for b in e.breaks)
    assert "reads a file" in e.breaks[0].reason and "load) at " in e.breaks[0].rule
    assert all(ev.file == __file__ for ev in e.events)
    places = [p for ev in e.events for p in ev.detail.get("places", [])]
    assert all(file == __file__ for file, _ in places)
    assert [line - LINE for _, line in places] == [1, 2, 4, 5, 5, 6]


def test_the_counts_add_up() -> None:
    e = fineline.explain(program)(X)
    in_graphs = sum(n.op.startswith("call_") for g in e.graphs for n in g.graph.nodes)
    assert e.operators == in_graphs
    # mul, sin | load | cos, sum, gt | bool | mul
    assert e.operators + e.eager_operators == 6
    assert len(e.breaks) == 2


def test_the_text() -> None:
    text = str(fineline.explain(program)(X))
    first = text.splitlines()[0]
    assert first.startswith("program: ") and "2 graph breaks" in first and "guard" in first
    assert f"{__file__}:{LINE + 3}" in text and "next " in text
    assert "src/fineline" not in text
    assert fineline.explain(program)(X)._repr_html_().startswith("<iframe ")


def test_guards_and_program_are_readable() -> None:
    e = fineline.explain(program)(X)
    assert any(g.startswith("x is a Tensor of size (3,), torch.float32, cpu") and f"{__file__}" not in g for g in e.guards)
    assert "def program(" in e.program
    compile(e.program, "<program>", "exec")


def iterating(x, factors):
    for a, b in zip(factors, map(abs, factors), strict=True):
        x = x * a + b
    return x


def test_no_guard_is_on_what_stands_for_c_code() -> None:
    guards = fineline.explain(iterating)(X, [1.5, -2.5]).guards
    assert any("builtins['zip'] is zip" in g for g in guards)
    assert not [g for g in guards if "Zip" in g or "Map" in g or "iterators" in g]


def test_nothing_is_kept() -> None:
    c = fineline.compile(program, backend="eager")
    fineline.explain(c)(X)
    assert not c._region.segments()


def missed(change, fn, *args):
    c = fineline.compile(fn, backend="eager")
    c(*args)
    c(*change)
    events = [e for e in c._region.reports.events if e.kind == "recompile"]
    assert len(events) == 1
    return events[0].reason


def test_a_recompile_names_expression_old_and_new() -> None:
    def f(x, n):
        return x * n

    assert "x: sizes (3,) -> (5,)" in missed((torch.ones(5), 2), f, X, 2)
    reason = missed((X, 3), f, X, 2)
    assert "n: 2 -> 3" in reason
    assert "dtype torch.float32 -> torch.float64" in missed((X.double(), 2), f, X, 2)
    assert "n: 2 -> 2.5" in missed((X, 2.5), f, X, 2)


def test_a_recompile_names_an_attribute() -> None:
    class Net(nn.Module):
        scale = 2

        def forward(self, x):
            return x * self.scale

    m = Net()
    m.scale = 3
    c = fineline.compile(m.forward, backend="eager")
    c(X)
    m.scale = 4
    c(X)
    (event,) = [e for e in c._region.reports.events if e.kind == "recompile"]
    assert "self.scale: 3 -> 4" in event.reason and f"{__file__}:{Net.forward.__code__.co_firstlineno + 1}" in event.reason


def test_grad_mode_is_named() -> None:
    def f(x):
        return x * 2

    c = fineline.compile(f, backend="eager")
    c(X)
    with torch.no_grad():
        c(X)
    (event,) = [e for e in c._region.reports.events if e.kind == "recompile"]
    assert "grad_mode True -> False" in event.reason


def test_a_call_that_raises_is_an_event() -> None:
    def f(x):
        raise ValueError("bad")

    c = fineline.compile(f, backend="eager")
    try:
        c(X)
    except ValueError:
        pass
    (event,) = c._region.reports.events
    assert (event.kind, event.id, event.reason) == ("raised", "FL408", "ValueError: bad")
