"""Generators that are alive at a graph break and dropped behind it: their ``finally`` clauses run where eager code runs them, at each call."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch

from tests.oracle import TWINS, Program, Table, check, t

table = Table()
EACH = {"breaks": True, "calls": 4, "args": lambda place: (t(place, 3 + (place > 2), 4),), "recompiles": (1, 2, 3), "backward": False, "min_graphs": 0}


# Where the iterator itself runs eagerly, the program holds it to its end: README, "What differs from eager code".
WITHOUT_BORDERS = tuple(name for name in TWINS if name != "borders")


def made(body=None, **options):
    """A program whose generators note in a list what becomes of them."""
    if body is None:
        return lambda body: made(body, **options)

    def make():
        log = []

        def items(x, name="items"):
            try:
                for k in range(4):
                    yield x * k
            finally:
                log.append(f"{name} left")

        def fn(x):
            result = body(x, items, log)
            log.append("done")
            return result

        return fn, log

    make.__name__ = body.__name__
    return table.program(**EACH | options)(make)


@made
def at_the_end(x, items, log):
    g = items(x)
    next(g)
    x.tolist()
    return x + 1


@made
def by_del(x, items, log):
    g = items(x)
    next(g)
    x.tolist()
    del g
    log.append("gone")
    return x + 1


@made
def by_another_value(x, items, log):
    g = items(x)
    y = next(g)
    x.tolist()
    g = None
    log.append("gone")
    return x + y, g


@made
def two_in_order(x, items, log):
    a, b = items(x, "a"), items(x, "b")
    next(a), next(b)
    x.tolist()
    return x + 1


@made
def in_any(x, items, log):
    found = any(bool(y.sum() > 0.5) for y in items(x))
    x.tolist()
    return x + found


@made(twins=WITHOUT_BORDERS)
def in_zip(x, items, log):
    pairs = zip(items(x, "a"), items(x, "b"), strict=False)
    a, b = next(pairs)
    x.tolist()
    return a + b + x


@made(twins=WITHOUT_BORDERS)
def in_islice(x, items, log):
    few = itertools.islice(items(x), 2)
    y = next(few)
    x.tolist()
    return x + y


@made
def in_a_list(x, items, log):
    held = [items(x)]
    y = next(held[0])
    x.tolist()
    held.clear()
    log.append("gone")
    return x + y


@made
def of_yield_from(x, items, log):
    def outer():
        try:
            yield from items(x)
        finally:
            log.append("outer left")

    g = outer()
    y = next(g)
    x.tolist()
    return x + y


@made
def behind_two_breaks(x, items, log):
    g = items(x)
    next(g)
    x.tolist()
    y = next(g)
    x.sum().item()
    return x + y


@made
def in_a_callee(x, items, log):
    def inner():
        g = items(x)
        y = next(g)
        x.tolist()
        return y

    y = inner()
    log.append("behind the callee")
    return x + y


@made
def broken_inside(x, items, log):
    def broken():
        try:
            x.tolist()
            yield x * 2
            yield x * 3
        finally:
            log.append("broken left")

    g = broken()
    return next(g) + 1


@made
def a_loop_left(x, items, log):
    for y in items(x):
        if y.sum().item() != 0:
            break
    log.append("behind the loop")
    x.tolist()
    return x + y


@made
def a_context_never_left(x, items, log):
    @contextlib.contextmanager
    def noted():
        log.append("entered")
        try:
            yield x * 2
        finally:
            log.append("left")

    context = noted()
    y = context.__enter__()
    x.tolist()
    return x + y


@made
def whose_end_computes(x, items, log):
    def summing():
        total = torch.zeros(())
        try:
            while True:
                total = total + (yield total)
        finally:
            log.append(total * 2)

    g = summing()
    next(g)
    g.send(x.sum())
    x.tolist()
    return x + g.send(x.mean())


@made
def whose_end_breaks(x, items, log):
    def ending():
        try:
            yield x
        finally:
            log.append(x.sum().item())

    g = ending()
    next(g)
    x.tolist()
    return x + 1


@made
def that_a_closure_holds(x, items, log):
    g = items(x)

    def step():
        return next(g)

    y = step()
    x.tolist()
    return y + x


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_dropped_generators(program: Program, twin: str) -> None:
    check(program, twin)


def test_beside_the_frame_evaluator_of_torch_compile() -> None:
    """With another frame evaluator, CPython's calls hold their arguments until they return."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    for program in table.programs:
        check(program, "captured")
