"""Functions, methods and partials that eager code makes anew at each call, and what is called of them: known by their code, not as objects."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
# What torch.compiler.disable hands on; through it PyTorch's own mark is on the function.
by_torch = torch.compiler.disable
ANY: dict[str, Any] = {"calls": 12, "breaks": True, "backward": False}


def body(x):
    return ((x * 2).sin() + 1).cos().exp().tanh().abs().neg()


def plain(x):
    return x + 1


class Scale:
    def __init__(self, k=3):
        self.k = k

    def method(self, x):
        return x * self.k

    @staticmethod
    def static(x):
        return x - 1

    def __call__(self, x):
        return x + self.k


def logged(fn):
    @functools.wraps(fn)
    def call(*args):
        return fn(*args)

    return call


@table.snippet(**ANY)
def a_disabled_function(x):
    return body(by_torch(plain)(body(x)))


@table.snippet(**ANY)
def a_disabled_lambda(x):
    return body(by_torch(lambda v: v + 1)(body(x)))


@table.snippet(**ANY)
def a_disabled_lambda_with_a_variable(x):
    k = 4
    return body(by_torch(lambda v: v + k)(body(x)))


@table.snippet(**ANY)
def a_disabled_method(x):
    return body(by_torch(Scale().method)(body(x)))


@table.snippet(**ANY)
def a_disabled_static_method(x):
    return body(by_torch(Scale.static)(body(x)))


@table.snippet(**ANY)
def a_disabled_wrapper(x):
    return body(by_torch(logged(plain))(body(x)))


@table.snippet(**ANY)
def a_disabled_partial(x):
    return body(by_torch(functools.partial(torch.add, other=2))(body(x)))


@table.snippet(**ANY)
def with_a_reason(x):
    return body(by_torch(plain, reason="it prints")(body(x)))


@table.snippet(**ANY)
def fineline_disables(x):
    return body(fineline.disable(lambda v: v * 2)(body(x)))


def made(make: Callable[[], Any]) -> Callable[[], Any]:
    return fineline.disable(make)


MADE: dict[str, Callable[[], Any]] = {
    "a_lambda": made(lambda: lambda x: x + 1),
    "a_closure": made(lambda: (lambda k: lambda x: x + k)(2)),
    "with_defaults": made(lambda: lambda x, k=5: x * k),
    "a_partial": made(lambda: functools.partial(lambda x, k: x + k, k=1)),
    "a_partial_of_an_operator": made(lambda: functools.partial(torch.mul, torch.ones(()))),
    "a_method": made(lambda: Scale().method),
    "an_object": made(lambda: Scale(7)),
    "a_wrapper": made(lambda: logged(lambda x: x.sin())),
    "a_module": made(lambda: torch.nn.Identity()),
    "functions_in_a_list": made(lambda: [lambda x: x * 3][0]),
}
for name, make in MADE.items():

    def program(make: Any = make) -> Any:
        return lambda x: body(make()(body(x)))

    program.__name__ = name
    table.program(**ANY)(program)


# -- what tells them apart ------------------------------------------------------------------------------------------------
@table.snippet(calls=6, args=lambda place: (t(place), place % 3), breaks=True, recompiles=(1, 2, 3), backward=False)
def one_of_several(x, n):
    fn = by_torch((plain, Scale(2).method, lambda v: v * 5)[n])
    return body(fn(body(x)))


@fineline.disable
def marked_or_not(n):
    def fn(x):
        return x + 1

    return (by_torch(fn), fn, by_torch(fn, recursive=False), logged(by_torch(fn)))[n]


@table.snippet(calls=8, args=lambda place: (t(place), place % 4), breaks=True, recompiles=(1, 2, 3, 4, 5), backward=False)
def with_a_mark_and_without(x, n):
    return body(marked_or_not(n)(body(x)))


@table.snippet(calls=6, args=lambda place: (t(place), place // 2), breaks=True, recompiles=(1, 2, 3, 4, 5), backward=False)
def with_another_variable(x, n):
    fn = fineline.disable(lambda: lambda v, k=n + 1: v * k + n)()
    return body(fn(body(x)))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_functions_made_anew(program: Program, twin: str) -> None:
    check(program, twin)
