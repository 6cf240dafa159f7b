"""References and memory: nothing leaks, over many calls and over many programs."""

from __future__ import annotations

import gc
import sys
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from fineline.guards.facts import ambient_facts, tensor_facts
from fineline.region.guard_dispatch import make_dispatcher, make_guard_program
from tests.guards.test_shortcuts import Impostor

native = pytest.importorskip("fineline._native")


def test_reference_counts_over_many_calls() -> None:
    model, value, key = nn.Linear(2, 2), torch.zeros(2), object()
    holder = {"model": model, "list": [value], key: 1.5, "local": (1, key)}
    facts, weight = tensor_facts(value), model._parameters["weight"]
    steps: list[Any] = [
        ("ambient", -1, -1, ambient_facts()),
        ("root", 0, -1, 0), ("root", 1, -1, 1), ("tensor", -1, 1, facts),
        ("key", 2, 0, "model"), ("type", -1, 2, nn.Linear), ("dict", 3, 2, None), ("key", 4, 3, "_parameters"),
        ("key", 5, 4, "weight"), ("tensor", -1, 5, tensor_facts(weight)),
        ("key", 6, 0, "list"), ("index", 7, 6, 0), ("is", -1, 7, value),
        ("member", 8, 5, torch._C.TensorBase.grad), ("is", -1, 8, None),
        ("key", 9, 0, key), ("eq", -1, 9, 1.5), ("predicate", -1, 9, (lambda v: v > 1, "more than one")),
    ]  # fmt: skip
    dispatcher = make_dispatcher(lambda args, kwargs: None)
    program = make_guard_program(2, steps, (5, 7, 1, 9, 8), "native")
    target = lambda *outputs: None  # noqa: E731
    dispatcher.set_entries([(1, ("x",), program, target)])
    watched = [
        model, value, key, holder, weight, facts, program, target, steps, holder["list"], holder["local"], nn.Linear, None, 1.5,
        model.__dict__, model._parameters, dispatcher,
    ]  # fmt: skip
    inputs = [torch.zeros(2), torch.zeros(3)]

    def calls() -> None:
        for i in range(500):
            dispatcher(holder, x=value)
            dispatcher(holder, x=inputs[i % 2])
            program.check((holder, value))
            program.failing((holder, inputs[1]))
            model.calls = i
            holder["other"] = 1
            dispatcher(holder, x=value)
            del holder["other"]

    calls()
    before = [sys.getrefcount(object) for object in watched]
    calls()
    after = [sys.getrefcount(object) for object in watched]
    # None and 1.5 are everybody's; a leak here would be one or more per call.
    assert all(abs(a - b) < 20 for a, b in zip(before, after)), list(zip(before, after))


def test_reference_counts_where_keys_run_code() -> None:
    impostor = Impostor("x")
    value = object()
    holder = {impostor: value}
    program = make_guard_program(1, [("root", 0, -1, 0), ("key", 1, 0, "x")], (1,), "native")
    assert program.check((holder,)) == (value,)
    before = sys.getrefcount(value), sys.getrefcount(holder), sys.getrefcount(impostor)
    for _ in range(300):
        program.check((holder,))
        program.failing((holder,))
    assert before == (sys.getrefcount(value), sys.getrefcount(holder), sys.getrefcount(impostor))


def resident() -> int:
    return int(psutil.Process().memory_info().rss)


@pytest.mark.slow
def test_memory_is_flat_over_many_programs() -> None:
    model, value = nn.Linear(2, 2), torch.zeros(2)
    facts, ambient = tensor_facts(value), ambient_facts()

    def make() -> None:
        steps: list[Any] = [
            ("ambient", -1, -1, ambient), ("root", 0, -1, 0), ("type", -1, 0, nn.Linear), ("dict", 1, 0, None),
            ("key", 2, 1, "_parameters"), ("keys", -1, 2, ("weight", "bias")), ("root", 3, -1, 1), ("tensor", -1, 3, facts),
            ("type_lacks", -1, -1, (nn.Linear, "nothing")), ("distinct", -1, -1, ((3,), (0,))), ("storages", -1, -1, ((3,), (0,))),
        ]  # fmt: skip
        program = make_guard_program(2, steps, (0, 3), "native")
        dispatcher = make_dispatcher(lambda args, kwargs: None)
        dispatcher.set_entries([(2, (), program, lambda *outputs: None)])
        for _ in range(3):
            dispatcher(model, value)
        dispatcher.set_entries([])

    for _ in range(10_000):
        make()
    gc.collect()
    before = resident()
    for _ in range(100_000):
        make()
    gc.collect()
    assert resident() - before < 4_000_000


@pytest.mark.slow
def test_memory_is_flat_over_many_models() -> None:
    """Tables for models that are gone do not pile up."""
    model = nn.Sequential(*[nn.Identity() for _ in range(40)])
    steps: list[Any] = [("root", 0, -1, 0), ("type", -1, 0, nn.Sequential), ("dict", 1, 0, None), ("key", 2, 1, "_modules")]
    for i, name in enumerate(model._modules):
        base = 3 + 3 * i
        steps += [("key", base, 2, name), ("type", -1, base, nn.Identity), ("dict", base + 1, base, None)]
        steps += [("key", base + 2, base + 1, "training"), ("eq", -1, base + 2, True)]
    program = make_guard_program(1, steps, (0,), "native")

    def run(count: int) -> None:
        for _ in range(count):
            fresh = nn.Sequential(*model)
            assert program.check((fresh,)) is not None
            assert program.check((fresh,)) is not None

    run(500)
    gc.collect()
    before = resident()
    run(2000)
    gc.collect()
    assert resident() - before < 4_000_000
