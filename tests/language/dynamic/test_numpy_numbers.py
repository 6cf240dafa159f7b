"""Numbers of NumPy's that vary from call to call: a second program takes any, as for Python's."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fineline
from tests.oracle import Program, Step, check, t

TYPES = (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8)
VALUES = (3, 1, 2, 5, 4, 3, 7, 6, 9, 8, 10)


class Held:
    scale: Any = None


HELD = Held()
TABLE = {"scale": None}


def operators(x: Tensor, a: Any) -> Any:
    return x * a + a, a - x, torch.add(x, x, alpha=a), x.clamp(max=a), torch.full_like(x, a)


def conversions(x: Tensor, a: Any) -> Any:
    return x * float(a), x + int(a), x - a.item(), float(a) * 0.5


def truth(x: Tensor, a: Any) -> Any:
    return (x if a < 6 else x * 2), a >= 6, a == 20, type(a > 6)


def moved(x: Tensor, a: Any) -> Any:
    return x + 1, a, [a, {"a": a}], type(a), a.dtype


def of_an_attribute(x: Tensor, a: Any) -> Any:
    return x * HELD.scale


def of_a_dict(x: Tensor, a: Any) -> Any:
    return x * TABLE["scale"], [v for v in TABLE.values()]


def twice(x: Tensor, a: Any) -> Any:
    return x * HELD.scale, HELD.scale, x + HELD.scale


def tensors_of_them(x: Tensor, a: Any) -> Any:
    return torch.tensor(a), torch.tensor([a, a]), torch.as_tensor([[a], [1]]), x + torch.tensor(data=(a, a, a, a))


def as_an_index(x: Tensor, a: Any) -> Any:
    y = x * a
    try:
        return y, operator.index(a)
    except TypeError as e:
        return y, str(e)


PROGRAMS = {fn.__name__: fn for fn in (operators, conversions, truth, moved, of_an_attribute, of_a_dict, twice, tensors_of_them, as_an_index)}
# What looks at the number itself is captured for each.
ANEW = {("truth", t) for t in TYPES if t not in (np.float64, np.int64)} | {(name, t) for t in TYPES for name in ("of_a_dict", "tensors_of_them", "as_an_index")}


def given(kind: type, value: int) -> Any:
    number = kind(value)
    HELD.scale, TABLE["scale"] = kind(value), kind(value)
    return (t(0, 4), number)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_numbers_that_vary(name: str, kind: type, twin: str) -> None:
    steps = [Step(k, args=lambda _, v=v: given(kind, v)) for k, v in enumerate(VALUES[:5])]
    check(Program(name, lambda: (PROGRAMS[name], None), steps, frozenset(range(5)), min_graphs=0, breaks=True, backward=False), twin)


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_two_programs_are_enough(name: str, kind: type) -> None:
    if (name, kind) in ANEW:
        pytest.skip("it looks at the number")
    graphs: list[Any] = []
    compiled = fineline.compile(PROGRAMS[name], backend=lambda gm, _: graphs.append(gm) or gm, options={"recompile_limit": 4})
    for value in VALUES:
        args = given(kind, value)
        assert repr(compiled(*args)) == repr(PROGRAMS[name](*args))
    assert len(graphs) <= (3 if name == "truth" else 2)


@pytest.mark.parametrize("kind", [np.int64, np.int32], ids=lambda kind: kind.__name__)
def test_bounds_and_places(kind: type) -> None:
    def fn(x: Tensor, n: Any) -> Any:
        return x[:n], x[n], x.narrow(0, 0, n), x[1:n, 1], torch.zeros(n)

    graphs: list[Any] = []
    compiled = fineline.compile(fn, backend=lambda gm, _: graphs.append(gm) or gm, options={"recompile_limit": 4})
    for n in (3, 5, 4, 6, 2, 7, 8, 9):
        x = t(0, 12, 2)
        for ours, theirs in zip(compiled(x, kind(n)), fn(x, kind(n)), strict=True):
            assert torch.equal(ours, theirs)
    assert len(graphs) == 2
