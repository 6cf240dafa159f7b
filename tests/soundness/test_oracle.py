"""The oracle must see what it is for: each of these false compilers differs from eager in one way, and has to be caught."""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from tests.oracle import Program, Step, compare, eager, run

Wrong = Callable[[Any], Any]
pytestmark = pytest.mark.oracle


class Box:
    def __init__(self) -> None:
        self.value = 0
        self.items: list[Any] = []


def program() -> Program:
    def make() -> Any:
        box = Box()

        def fn(x: torch.Tensor, into: list[Any]) -> Any:
            box.value += 1
            into.append(x)
            y = x * box.value
            return {"y": y, "again": y, "into": into, "fresh": [1], "view": x[0]}

        return fn, box

    return Program("sample", make, [Step(i, lambda i: (torch.full((2, 2), i + 1.0, requires_grad=True), [])) for i in range(3)])


def changed(edit: Callable[[Any, Any, Any], Any]) -> Wrong:
    def compiler(fn: Any) -> Any:
        def keep(x: Any, into: Any) -> Any:
            result = fn(x, into)
            new = edit(result, x, into)
            return result if new is None else new

        return keep

    return compiler


def with_item(key: str, make: Callable[[Any, Any, Any], Any]) -> Wrong:
    return changed(lambda result, x, into: {**result, key: make(result, x, into)})


def not_replayed(fn: Any) -> Any:
    kept: list[Any] = []

    def call(x: Any, into: Any) -> Any:
        if not kept:
            kept.append(fn(x, into))
        return kept[0]

    return call


def also(effect: Callable[[], object]) -> Wrong:
    return changed(lambda result, x, into: effect() and None)


def raising(fn: Any) -> Any:
    def call(x: Any, into: Any) -> Any:
        fn(x, into)
        raise ValueError("no")

    return call


class Sub(torch.Tensor):
    pass


WRONG: dict[str, Wrong] = {
    "value": with_item("y", lambda r, x, into: r["y"] + 1e-7),
    "sign of zero": with_item("y", lambda r, x, into: r["y"] * 0 * -1),
    "not replayed": not_replayed,
    "identity lost": with_item("again", lambda r, x, into: r["y"].clone()),
    "identity with argument lost": with_item("into", lambda r, x, into: list(into)),
    "view is a copy": with_item("view", lambda r, x, into: x[0].clone()),
    "gradient lost": with_item("y", lambda r, x, into: r["y"].detach()),
    "tensor class": with_item("y", lambda r, x, into: r["y"].as_subclass(Sub)),
    "stride": with_item("y", lambda r, x, into: r["y"].t().contiguous().t()),
    "type": with_item("fresh", lambda r, x, into: (1,)),
    "bool for int": with_item("fresh", lambda r, x, into: [True]),
    "order of a dict": changed(lambda r, x, into: dict(reversed(r.items()))),
    "argument not mutated": changed(lambda r, x, into: into.clear()),
    "written twice": changed(lambda r, x, into: into.append(x)),
    "attribute left on a tensor": changed(lambda r, x, into: setattr(x, "_note", 1)),
    "random numbers used": also(lambda: torch.rand(1)),
    "python random used": also(random.random),
    "output": also(lambda: print("hello") or None),
    "warning": also(lambda: warnings.warn("careful", stacklevel=1)),
    "grad mode": also(lambda: torch.set_grad_enabled(False) and None),
    "exception": raising,
    "gradient changed": changed(lambda r, x, into: r["y"].register_hook(lambda g: g * 2) and None),
    "deep copy": changed(lambda r, x, into: copy.copy({**r, "y": r["y"].detach().clone().requires_grad_()})),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_false_compiler_is_caught(name: str) -> None:
    sample = program()
    found = compare(eager(sample), run(sample, WRONG[name]))
    torch.set_grad_enabled(True)
    assert found, name


def test_no_difference_is_seen_where_there_is_none() -> None:
    sample = program()
    assert compare(eager(sample), run(sample, lambda fn: fn)) == []


def chained(wrap: Callable[[Exception], Exception]) -> Program:
    def make() -> Any:
        def fn(x: torch.Tensor) -> Any:
            try:
                raise KeyError("k")
            except KeyError as error:
                raise wrap(error) from error

        return fn

    return Program("chain", make, [Step(0, lambda i: (torch.ones(1),))])


def test_the_chain_of_an_exception_is_compared() -> None:
    sample = chained(lambda error: ValueError("v"))

    def flat(fn: Any) -> Any:
        def call(x: Any) -> Any:
            try:
                fn(x)
            except ValueError as error:
                error.__cause__ = None
                raise

        return call

    assert compare(eager(sample), run(sample, lambda fn: fn)) == []
    assert compare(eager(sample), run(sample, flat))


def test_a_wrapper_whose_class_is_replaced_is_compared() -> None:
    class Other(torch.Tensor):
        pass

    def make() -> Any:
        def fn(x: torch.Tensor) -> Any:
            x.__class__ = Other
            return x

        return fn

    sample = Program("replaced", make, [Step(0, lambda i: (TwoTensor(torch.ones(2), torch.ones(2)),))])
    assert compare(eager(sample), run(sample, lambda fn: fn)) == []
    assert compare(eager(sample), run(sample, lambda fn: lambda x: None))
