"""Graphs that AOTAutograd would get wrong run as they were captured, in whichever way a user's backend reaches it; other backends get them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import aot_function, aot_module, aot_module_simplified, make_boxed_func
from torch._inductor.compile_fx import compile_fx
from torch.testing._internal.two_tensor import TwoTensor

import fineline
from fineline.backends.registry import lookup_backend
from tests.oracle import t


def boxed(gm: fx.GraphModule, examples: Any) -> Callable:
    made: Callable = make_boxed_func(gm.forward)
    return made


def simplified(gm: fx.GraphModule, examples: list[Any]) -> Any:
    return aot_module_simplified(gm, examples, fw_compiler=boxed)


def of_a_copy(gm: fx.GraphModule, examples: list[Any]) -> Any:
    return aot_module_simplified(fx.GraphModule(gm, gm.graph), examples, fw_compiler=boxed)


def finelines(gm: fx.GraphModule, examples: list[Any]) -> Any:
    return lookup_backend("aot_eager")(gm, examples)


def when_it_runs(gm: fx.GraphModule, examples: list[Any]) -> Any:
    return aot_function(gm, fw_compiler=boxed)


def module_when_it_runs(gm: fx.GraphModule, examples: list[Any]) -> Any:
    return aot_module(gm, fw_compiler=boxed)


def written_and_viewed(x: torch.Tensor) -> Any:
    y: Any = TwoTensor(x, x * 2)
    y.add_(1)
    return y, y[0]


def made_of_what_is_written(x: torch.Tensor) -> Any:
    x.add_(1)
    y: Any = TwoTensor(x, x * 2)
    return y, y[0]


def in_memory_of(x: torch.Tensor, results: Any) -> list[bool]:
    return [inner.untyped_storage().data_ptr() == x.untyped_storage().data_ptr() for y in results for inner in (y.a, y.b)]


def same(fn: Callable, compiled: Callable) -> None:
    for place in range(3):
        x, other = t(place), t(place)
        got, expected = compiled(x), fn(other)
        assert torch.equal(x, other) and in_memory_of(x, got) == in_memory_of(other, expected) == [True, False] * 2
        assert all(torch.equal(a.a, b.a) and torch.equal(a.b, b.b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("fn", [written_and_viewed, made_of_what_is_written])
@pytest.mark.parametrize("backend", [simplified, of_a_copy, aot_autograd(fw_compiler=boxed), compile_fx, finelines], ids=lambda b: b.__name__)
def test_a_users_backend_that_compiles_with_it(fn: Callable, backend: Callable) -> None:
    compiled = fineline.compile(fn, backend=backend)
    same(fn, compiled)
    said = [e for e in fineline.report(compiled).events if e.id == "FL435"]
    assert len(said) == 1 and "in memory of an input that it writes into" in said[0].reason


@pytest.mark.parametrize("fn", [written_and_viewed, made_of_what_is_written])
@pytest.mark.parametrize("backend", [when_it_runs, module_when_it_runs])
def test_a_users_backend_that_compiles_at_the_first_run(fn: Callable, backend: Callable) -> None:
    same(fn, fineline.compile(fn, backend=backend))


@pytest.mark.parametrize("backend", [simplified, when_it_runs])
def test_in_the_background(backend: Callable) -> None:
    compiled = fineline.compile(written_and_viewed, backend=backend, wait=False)
    same(written_and_viewed, compiled)
    assert fineline.wait(60)
    same(written_and_viewed, compiled)


@pytest.mark.parametrize("fn", [written_and_viewed, made_of_what_is_written])
def test_a_backend_without_it_gets_the_graph(fn: Callable) -> None:
    runs = []

    def backend(gm: fx.GraphModule, examples: list[Any]) -> Any:
        def run(*inputs: Any) -> Any:
            runs.append(gm)
            return gm(*inputs)

        return run

    compiled = fineline.compile(fn, backend=backend)
    same(fn, compiled)
    assert len(runs) == 2 and not [e for e in fineline.report(compiled).events if e.kind == "eager"]


def exchanged(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    held = x.data
    x.data = y
    x.add_(1)
    return held.sum() + x


@pytest.mark.parametrize("backend", [simplified, when_it_runs, aot_autograd(fw_compiler=boxed), compile_fx, finelines], ids=lambda b: b.__name__)
def test_data_that_is_set_and_written_into(backend: Callable) -> None:
    compiled = fineline.compile(exchanged, backend=backend, fullgraph=True)
    for i in range(3):
        x, other = torch.arange(3.0) + i, torch.arange(3.0) + i
        got, expected = compiled(x), exchanged(other)
        assert torch.equal(got, expected) and torch.equal(x, other)
