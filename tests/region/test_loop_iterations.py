"""The iterations of a loop with graph breaks in it have their programs in common: how many are made, when they part, and that they go."""

from __future__ import annotations

import gc
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from fineline.report.events import LISTENERS
from tests.oracle import t


def body(x, i):
    # Enough for a graph of its own.
    for _ in range(20):
        x = (x * 0.5).sin() + i % 3
    return x


def ranged(x, n):
    for i in range(n):
        x = body(x, i)
        fineline.graph_break()
    return x


def counted(x, n):
    i, total = 0, 0.5
    while i < n:
        x = body(x, i)
        total += x.sum().item()
        i += 1
    return x, total


def asked(x, n):
    iterations = torch.zeros(())
    while iterations < n:
        x = body(x, 1)
        iterations = iterations + 1
    return x


def nested(x, n):
    for i in range(n // 10):
        for k in range(10):
            x = body(x, i * k)
            fineline.graph_break()
    return x


def grown(x, n):
    for _ in range(n // 10):
        x = torch.cat([body(x, 1), x[:1]])
        fineline.graph_break()
    return x


def programs(compiled: Callable, fn: Callable, iterations: list[int]) -> list[int]:
    """How many are made in each call of so many iterations."""
    found, before = [], LISTENERS.all
    for n in iterations:
        heard: list[str] = []
        LISTENERS.all = (*before, lambda event, heard=heard: heard.append(event.kind))
        try:
            torch.testing.assert_close(compiled(t(n), n), fn(t(n), n), rtol=0, atol=0)
        finally:
            LISTENERS.all = before
        found.append(heard.count("program"))
    return found


@pytest.mark.parametrize("options", [{}, {"dynamic": True}], ids=str)
@pytest.mark.parametrize("fn", [ranged, counted, asked, nested, grown], ids=lambda fn: fn.__name__)
def test_iterations_have_their_programs_in_common(fn: Callable, options: dict[str, Any]) -> None:
    """At most 400 graph breaks are captured in one call; each would be a program, and 100 for the shorter ones."""
    found = programs(fineline.compile(fn, backend="eager", **options), fn, [100, 100, 150, 600, 500])
    assert found[0] <= 10 and found[2] <= 4 and not found[1]
    # How often a range is gone through is fixed where it is made.
    assert max(found[3:]) <= (fn in (ranged, nested, grown))


def test_iterations_are_no_recompilation() -> None:
    compiled = fineline.compile(ranged, backend="eager", options={"error_on_recompile": True})
    for place in range(3):
        assert torch.equal(compiled(t(place), 50), ranged(t(place), 50))


ITEMS: dict[str, tuple[Callable, Callable]] = {
    "modules": (lambda layer: layer, lambda item: item),
    "functions": (lambda layer: lambda x: layer(x), lambda item: item),
    "tuples": (lambda layer: ("name", layer), lambda item: item[1]),
    "lists": (lambda layer: [layer, 1.0], lambda item: item[0]),
    "dicts": (lambda layer: {"layer": layer}, lambda item: item["layer"]),
    "objects": (lambda layer: types.SimpleNamespace(layer=layer), lambda item: item.layer),
}


@pytest.mark.parametrize("name", ITEMS)
def test_iterations_that_have_nothing_in_common_are_captured_as_they_come(name: str) -> None:
    """Each for its number, on the real values."""
    make, layer_of = ITEMS[name]
    items = [make(torch.nn.Linear(4, 4)) for _ in range(12)]

    def fn(x, n):
        for i in range(n):
            x = body(layer_of(items[i])(x), 1)
            fineline.graph_break()
        return x

    found = programs(fineline.compile(fn, backend="eager"), fn, [12, 12])
    assert found == [13, 0]


WORD = ""
TALKS = False


@fineline.disable
def talk(i: int) -> None:
    global WORD
    WORD = f"{i}, " * i if TALKS and i % 2 else ""


def said(x, n):
    for i in range(n):
        x = body(x, i)
        if i > 5:
            x = x + len(WORD)
        talk(i)
    return x


def test_iterations_that_come_to_differ_more_and_more_are_captured_as_they_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many programs as a region may have are too many for one place of a loop: the next capture has a place for each iteration."""
    compiled = fineline.compile(said, backend="eager")
    assert programs(compiled, said, [40]) < [12]
    monkeypatch.setitem(said.__globals__, "TALKS", True)
    heard, before = [], LISTENERS.all
    LISTENERS.all = (*before, lambda event: heard.append(f"{event.kind} {event.reason}"))
    try:
        assert torch.equal(compiled(t(1), 40), said(t(1), 40))
    finally:
        LISTENERS.all = before
    assert [text for text in heard if text.startswith("limit") and "each iteration has its own" in text]
    assert programs(compiled, said, [40, 40]) == [41, 0]


def test_calls_that_differ_more_and_more_run_eagerly_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another capture would help none of them."""
    monkeypatch.setitem(said.__globals__, "WORD", "")
    monkeypatch.setitem(said.__globals__, "talk", fineline.disable(lambda i: None))
    compiled = fineline.compile(said, backend="eager")
    found = []
    for k in range(12):
        monkeypatch.setitem(said.__globals__, "WORD", "one " * k)
        found += programs(compiled, said, [12])
    assert max(found[1:]) == 1 and found[-3:] == [0, 0, 0]


KINDS = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128]


def test_a_few_iterations_that_differ_do_not_part_the_rest() -> None:
    """In each call two in a row fit no program, and then thirty are alike."""
    place = 0

    def fn(x, n):
        x, held = x.to(KINDS[place]), []
        for i in range(n):
            x = body(x, i)
            if 6 < i < 9:
                held.append(place)
            x = x + sum(held) if held else x
            fineline.graph_break()
        return x

    compiled = fineline.compile(fn, backend="eager")
    for place in range(len(KINDS)):  # noqa: B007  (read by the function)
        assert programs(compiled, fn, [40])[0] <= 12


def test_a_loop_is_freed_at_once() -> None:
    gc.collect()
    layer = torch.nn.Linear(4, 4)

    def fn(x, n):
        return counted(layer(x), n)

    compiled = fineline.compile(fn, backend="eager")
    for n in (30, 40, 50):
        assert torch.equal(compiled(t(n), n)[0], fn(t(n), n)[0])
    gone = weakref.ref(layer)
    enabled = gc.isenabled()
    gc.disable()
    try:
        del layer, fn, compiled
        assert gone() is None
    finally:
        if enabled:
            gc.enable()


def test_programs_may_be_dropped_in_a_loop() -> None:
    """Also where nothing but the region holds the programs, as the call has come to the loop in another way than the first."""
    drops = []

    @fineline.disable
    def called(i):
        if drops and i == 20:
            fineline.reset()

    def fn(x, n, late):
        if late:
            x = body(x, 1)
            fineline.graph_break()
        for i in range(n):
            x = body(x, i)
            called(i)
        return x

    compiled = fineline.compile(fn, backend="eager")
    assert torch.equal(compiled(t(0), 30, False), fn(t(0), 30, False))
    drops.append(True)
    for n, late in ((30, True), (30, False), (40, True), (40, True)):
        assert torch.equal(compiled(t(n), n, late), fn(t(n), n, late))
