"""Context variables: read, set and reset in captured code, across graph breaks, and by code around the calls."""

from __future__ import annotations

import contextlib
import contextvars
import functools
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import fineline
from fineline.errors import Unsupported
from tests.oracle import Program, Table, check

FULL = {"fullgraph": True}
table = Table()
GIVEN = ContextVar("one", default=1.0), ContextVar("two", default=2.0)


@contextlib.contextmanager
def held(var, value):
    token = var.set(value)
    try:
        yield token
    finally:
        var.reset(token)


def state() -> SimpleNamespace:
    """A variable with a value, one with a default, and one with neither."""
    some = SimpleNamespace(a=ContextVar("a"), b=ContextVar("b", default=3), c=ContextVar("c"))
    some.a.set(2.0)
    return some


@table.program(calls=4, recompiles=(1, 2, 3), options=FULL, change={1: lambda s: s.a.set(5.0), 2: lambda s: s.b.set(4), 3: lambda s: s.c.set("c")})
def reads() -> Any:
    s = state()
    return (lambda x: (x * s.a.get() + s.b.get(), s.a.get(None), s.b.get(7), s.c.get("none"))), s


CHANGES = {1: lambda s: s.a.set([3.0]), 2: lambda s: s.a.get().__setitem__(0, 3.0), 3: lambda s: s.a.get().append(1.0)}


@table.program(calls=4, recompiles=(1, 3), options=FULL, change=CHANGES)
def reads_a_list() -> Any:
    s = state()
    s.a.set([2.0])
    return (lambda x: (x * s.a.get()[-1], s.a.get())), s


@table.program(calls=4, recompiles=(1,), options=FULL, change={1: lambda s: s.c.set(torch.ones(3)), 2: lambda s: s.c.set(torch.zeros(3))})
def reads_a_tensor() -> Any:
    s = state()
    return (lambda x: (x * s.c.get(1), s.c.get(None))), s


@table.program(recompiles=(1,), options=FULL, change={1: lambda s: s.c.set(1)})
def has_no_value() -> Any:
    s = state()

    def fn(x):
        try:
            return x * s.c.get()
        except LookupError as error:
            return x + 1, type(error), error.args[0] is s.c

    return fn, s


@table.program(calls=4, recompiles=(1, 3), options=FULL, change={1: lambda s: s.a.set(3.0), 3: lambda s: s.c.set(1)})
def sets_and_resets() -> Any:
    s = state()

    def fn(x):
        token = s.a.set(s.a.get() + 1)
        try:
            y = x * s.a.get()
            other = s.c.set(y)
            z = s.c.get() + 1
            s.c.reset(other)
        finally:
            s.a.reset(token)
        return z, s.a.get(), s.c.get(None), token.var is s.a, token.old_value

    return fn, s


@table.program(calls=4, recompiles=(1, 2, 3), options=FULL)
def sets_for_good() -> Any:
    s = state()

    def fn(x):
        s.a.set(s.a.get() * 2)
        s.b.set(s.b.get() + 1)
        return x * s.a.get() + s.b.get()

    return fn, s


@table.program(calls=4, recompiles=(1,), options=FULL)
def sets_a_result() -> Any:
    s = state()

    def fn(x):
        before = s.c.get(None)
        token = s.c.set(x * 2)
        return before, s.c.get(), token

    return fn, s


@table.program(calls=4, options=FULL)
def blocks_in_blocks() -> Any:
    s = state()

    def fn(x):
        with held(s.a, 3.0), held(s.b, 4):
            y = x * s.a.get() + s.b.get()
            with held(s.a, 5.0):
                y = y + s.a.get()
            y = y - s.a.get()
        return y, s.a.get(), s.b.get()

    return fn, s


@table.program(breaks=True)
def a_break_inside() -> Any:
    s = state()

    def fn(x):
        with held(s.a, 3.0), held(s.c, x + 1):
            y = x * s.a.get()
            fineline.graph_break()
            y = y + s.a.get() * s.c.get()
        return y, s.a.get(), s.c.get(None)

    return fn, s


@table.program(breaks=True, recompiles=(1,), change={1: lambda s: s.a.set(4.0)})
def a_break_behind() -> Any:
    s = state()

    def fn(x):
        with held(s.a, 3.0):
            y = x * s.a.get()
        s.b.set(y)
        fineline.graph_break()
        return y + s.a.get() * s.b.get()

    return fn, s


@table.program(options=FULL)
def an_exception_inside() -> Any:
    s = state()

    def fn(x):
        try:
            with held(s.a, 3.0):
                y = x * s.a.get()
                raise KeyError("inside")
        except KeyError:
            return y + s.a.get()

    return fn, s


@table.program()
def an_exception_that_leaves_the_call() -> Any:
    s = state()

    def fn(x):
        s.b.set(s.b.get() + 1)
        with held(s.a, 3.0):
            raise KeyError(s.a.get())

    return fn, s


@table.program(breaks=True)
def refused_resets() -> Any:
    s = state()

    def attempt(x, var, token):
        try:
            return x * 2, var.reset(token)
        except (RuntimeError, ValueError, TypeError) as error:
            return x + 1, type(error)

    def fn(x):
        token = s.a.set(1.0)
        found = [attempt(x, s.b, token), attempt(x, s.a, None), attempt(x, s.a, token), attempt(x, s.a, token)]
        return found, s.a.get()

    return fn, s


@table.program(breaks=True, calls=4, recompiles=(1,))
def resets_in_another_order() -> Any:
    s = state()

    def fn(x):
        first, second = s.a.set(3.0), s.a.set(4.0)
        s.a.reset(first)
        y = x * s.a.get()
        s.a.reset(second)
        return y + s.a.get()

    return fn, s


@table.program(calls=4, breaks=True, recompiles=(1, 2, 3))
def resets_what_other_calls_have_set() -> Any:
    s = state()
    s.tokens = []

    def fn(x):
        y = x * s.a.get()
        if s.tokens:
            s.a.reset(s.tokens.pop())
        else:
            s.tokens.append(s.a.set(s.a.get() + 1))
        return y + s.a.get()

    return fn, s


@table.program(grad=True, calls=4, recompiles=(2,), change={2: lambda s: s.a.set(4.0)})
def in_a_checkpoint() -> Any:
    s = state()

    def body(v):
        with held(s.b, 5):
            return (v * s.b.get() * s.a.get()).sin()

    return (lambda x: checkpoint(body, x, use_reentrant=False) + s.b.get()), s


@table.program(breaks=True)
def set_in_a_checkpoint() -> Any:
    s = state()

    def body(v):
        s.b.set(5)
        return v * s.b.get()

    return (lambda x: checkpoint(body, x, use_reentrant=False) + s.b.get()), s


class ReadsInBackward(torch.autograd.Function):
    var: ContextVar[float] = ContextVar("read", default=2.0)

    @staticmethod
    def forward(ctx, x):
        return x * ReadsInBackward.var.get()

    @staticmethod
    def backward(ctx, g):
        return g * ReadsInBackward.var.get()


@table.program(grad=True, breaks=True, calls=4)
def in_a_backward_pass_after_the_block() -> Any:
    def fn(x):
        with held(ReadsInBackward.var, 5.0):
            y = ReadsInBackward.apply(x * 2)
        return y + ReadsInBackward.var.get()

    return fn


@table.program(grad=True, breaks=True, calls=4)
def in_a_checkpoint_after_the_block() -> Any:
    s = state()

    def body(v):
        return (v * s.b.get()).sin()

    def fn(x):
        with held(s.b, 5):
            y = checkpoint(body, x, use_reentrant=False)
        with held(s.a, 5):
            return y + checkpoint(body, x, use_reentrant=False)

    return fn, s


@table.program(breaks=True, calls=4, recompiles=(1,))
def tokens_that_outlive_their_blocks() -> Any:
    s = state()

    def fn(x):
        y = x + 1
        with held(s.a, 3.0) as token:
            y = y * s.a.get()
        try:
            s.a.reset(token)
        except RuntimeError:
            y = y + 1
        return y, token.var is s.a, token

    return fn, s


@functools.lru_cache
def setting_cached(n):
    set_last(n)
    return n + 1


LAST: ContextVar[Any] = ContextVar("last", default=0)


def set_last(n):
    LAST.set(n)


def sizes(place: int) -> tuple[torch.Tensor]:
    return (torch.ones(place % 4 + 2, 3),)


@table.program(calls=8, args=sizes, recompiles=range(1, 8))
def set_by_a_cached_function() -> Any:
    setting_cached.cache_clear()
    LAST.set(0)
    return (lambda x: (x * setting_cached(x.size(0)), LAST.get())), LAST


@table.program(breaks=True)
def in_a_context_of_its_own() -> Any:
    s = state()

    def inner(x):
        s.a.set(s.a.get() + 1)
        return x * s.a.get()

    return (lambda x: (contextvars.copy_context().run(inner, x + 1) + 1, s.a.get())), s


@table.program(calls=4, recompiles=(2,), options=FULL, args=lambda place: (torch.ones(2), GIVEN[place // 2]))
def given_as_arguments() -> Any:
    return lambda x, var: x * (var.get() + 1)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_context_variables(program: Program, twin: str) -> None:
    check(program, twin)


def test_a_backward_pass_reads_the_value_that_it_finds() -> None:
    compiled = fineline.compile(lambda x: ReadsInBackward.apply(x * 2) * 3, backend="eager")
    for _ in range(3):
        x = torch.ones(2, requires_grad=True)
        with held(ReadsInBackward.var, 5.0):
            y = compiled(x)
        y.sum().backward()
        assert y.tolist() == [30, 30] and x.grad is not None and x.grad.tolist() == [12, 12]


@pytest.mark.parametrize("block", [True, False], ids=["block", "for_good"])
def test_an_opaque_call_does_not_read_what_the_code_has_set(block: bool) -> None:
    var: ContextVar[float] = ContextVar("var", default=1.0)

    @fineline.allow_in_graph
    def opaque(x):
        return x * var.get()

    def fn(x):
        if not block:
            var.set(3.0)
            return opaque(x)
        with held(var, 3.0):
            return opaque(x)

    compiled = fineline.compile(fn, backend="eager")
    with pytest.raises(Unsupported, match=r"FL107.*reads .*var.get\(\), which the captured code has changed before"):
        contextvars.copy_context().run(compiled, torch.ones(2))


def test_each_thread_and_task_has_values_of_its_own() -> None:
    var: ContextVar[float] = ContextVar("var", default=1.0)
    compiled = fineline.compile(lambda x: x * var.get(), backend="eager", fullgraph=True)
    x = torch.ones(2)
    contexts = [contextvars.copy_context() for _ in range(3)]
    for k, context in enumerate(contexts):
        context.run(var.set, float(k))
    for _ in range(2):
        assert torch.equal(compiled(x), x)
        for k, context in enumerate(contexts):
            assert torch.equal(context.run(compiled, x), x * k)
