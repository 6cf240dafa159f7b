"""Generators that are dropped behind a graph break, or by an exception: their ``finally`` clauses run where eager code runs them, at each call."""

from __future__ import annotations

import contextlib
import itertools
import sys

import pytest
import torch

import fineline
from tests.oracle import TWINS, Program, Table, check, t

table = Table()
EACH = {"breaks": True, "calls": 4, "args": lambda place: (t(place, 3 + (place > 2), 4),), "recompiles": (1, 2, 3), "backward": False, "min_graphs": 0}


# Where the iterator itself runs eagerly, the program holds it to its end: README, "Limitations".
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


class Stop(Exception):
    pass


@fineline.disable
def refuse(x):
    raise Stop("refused")


def leaving(body=None, **options):
    """Programs that an exception leaves, with generators on the stacks of their frames."""
    return made(body, **{"recompiles": (0, 1, 2, 3)} | options) if body is not None else lambda body: leaving(body, **options)


@leaving
def an_eager_call_raises(x, items, log):
    for y in items(x):
        refuse(y)


@leaving
def an_eager_call_raises_in_a_callee(x, items, log):
    def callee(y):
        for z in items(y, "inner"):
            refuse(z)

    for y in items(x):
        callee(y)


@leaving
def an_operator_raises(x, items, log):
    for y in items(x):
        log.append(y[17])


@leaving
def a_raise(x, items, log):
    for y in items(x):
        raise Stop(y.dim())


@leaving
def from_two_loops(x, items, log):
    for y in items(x, "outer"):
        for z in items(y, "inner"):
            refuse(y + z)


@leaving
def caught_by_the_caller(x, items, log):
    def callee(y):
        for z in items(y):
            refuse(z)

    try:
        callee(x)
    except Stop as error:
        log.append(str(error))
    return x + len(log)


@leaving
def caught_and_raised_again(x, items, log):
    def callee(y):
        for z in items(y):
            refuse(z)

    try:
        callee(x)
    except Stop as error:
        log.append("caught")
        for y in items(x, "second"):
            raise ValueError(y.dim()) from error


@leaving
def through_another_generator(x, items, log):
    def outer():
        for y in items(x):
            yield y
            raise Stop("outer")

    for y in outer():
        log.append(y)


@leaving
def through_yield_from(x, items, log):
    def outer():
        try:
            yield from items(x)
        finally:
            log.append("outer left")

    for y in outer():
        refuse(y)


@leaving
def from_a_comprehension(x, items, log):
    return [refuse(y) for y in items(x)]


@leaving(twins=WITHOUT_BORDERS)
def from_a_loop_over_zip(x, items, log):
    for y, z in zip(items(x, "a"), items(x, "b"), strict=False):
        refuse(y + z)


@leaving(twins=WITHOUT_BORDERS)
def from_a_loop_over_enumerate(x, items, log):
    for k, y in enumerate(items(x)):
        refuse(y + k)


@leaving
def from_a_generator_expression(x, items, log):
    return sum(y[17] for y in items(x))


@leaving
def out_of_a_block(x, items, log):
    with contextlib.suppress(ValueError):
        for y in items(x):
            with torch.no_grad():
                refuse(y)


@leaving
def held_back_by_a_block(x, items, log):
    with contextlib.suppress(Stop):
        for y in items(x):
            refuse(y)
    log.append("behind the block")
    return x * 2


@leaving
def while_the_end_breaks(x, items, log):
    def ending():
        try:
            yield x
        finally:
            log.append(x.sum().item())

    for y in ending():
        refuse(y)


@leaving
def while_the_end_computes(x, items, log):
    def ending():
        try:
            yield x
        finally:
            log.append(x * 2)

    for y in ending():
        log.append(y[17])


@leaving
def while_the_end_asks_for_the_exception(x, items, log):
    def ending():
        try:
            yield x
        finally:
            log.append(type(sys.exc_info()[1]).__name__)

    for y in ending():
        refuse(y)


@leaving
def of_a_variable(x, items, log):
    g = items(x)
    next(g)
    refuse(x)


@leaving
def from_a_call_under_way(x, items, log):
    """The arguments lie on the stack."""
    return torch.add(next(items(x)), refuse(x))


@leaving
def by_an_exception_that_ends_programs(x, items, log):
    """Eager code above the compiled function goes on behind it."""

    def stop(y):
        raise SystemExit(3)

    try:
        for y in items(x):
            stop(y)
    except SystemExit as error:
        log.append(error.code)
    return x + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_dropped_generators(program: Program, twin: str) -> None:
    check(program, twin)


def test_beside_the_frame_evaluator_of_torch_compile() -> None:
    """With another frame evaluator, CPython's calls hold their arguments until they return."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))
    for program in table.programs:
        check(program, "captured")
