"""Sums of floats that vary between calls: rounded in Python's order and, from 3.12 on, with the rounding errors added at the end. Slices as keys."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import torch

from fineline.cpython.polyfill_builtins import compensated_sum, sum_
from tests.oracle import Program, Step, check

# Each sum differs from that in another order, or from that with the errors.
GIVEN = [(0.1, 0.2, 0.3), (1e16, 1.0, -1e16), (0.1, 0.7, 0.1), (1e100, 1.0, -1e100), (float("inf"), 1.0, -1.0), (2.0**60, 0.1, -(2.0**60))]


class Number:
    def __init__(self, held: float) -> None:
        self.held = held

    def __add__(self, other: Any) -> Any:
        return self.held + other

    __radd__ = __add__


SUMS: dict[str, Any] = {
    "a_list": lambda a, b, c: sum([a, b, c]),
    "a_tuple_from_a_float": lambda a, b, c: sum((a, b, c), 0.5),
    "values_of_a_dict": lambda a, b, c: sum({"a": a, "b": b, "c": c}.values()),
    "a_generator": lambda a, b, c: sum(v for v in (a, b, c)),
    "map": lambda a, b, c: sum(map(float, (a, b, c))),
    "with_ints": lambda a, b, c: sum([1, 2, a, True, b, c, 3]),
    "after_a_number_of_its_own": lambda a, b, c: sum([a, b, Number(1.0), c, 0.25]),
    "products": lambda a, b, c: sum([a * b, b * c, c * a]),
}


def of_floats(add: Any) -> Any:
    def fn(x: torch.Tensor, a: float, b: float, c: float) -> Any:
        return x.double() * add(a, b, c)

    return fn


def of_a_dict(x: torch.Tensor, held: dict[str, float]) -> Any:
    return x.double() * sum(held.values()), x + 1


def keys(x: torch.Tensor, n: int) -> Any:
    try:
        return x + {slice(1, 2): 5, slice(0, n): n}[slice(0, n)] + len({slice(1, 2), slice(1, n)}), hash(slice(n)) == hash(slice(n))
    except TypeError as e:
        return x * 2, str(e)


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
@pytest.mark.parametrize("kind", SUMS)
def test_sums(kind: str, dynamic: bool | None, twin: str) -> None:
    steps = [Step(place, lambda place: (torch.ones(2), *GIVEN[place])) for place in range(len(GIVEN))]
    read = frozenset(range(1, len(GIVEN)))
    check(Program(kind, lambda: of_floats(SUMS[kind]), steps, read, breaks=True, options={"dynamic": dynamic}), twin)


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
def test_values_from_outside(dynamic: bool | None, twin: str) -> None:
    steps = [Step(place, lambda place: (torch.ones(2), dict(zip("abc", GIVEN[place], strict=True)))) for place in range(len(GIVEN))]
    read = frozenset(range(1, len(GIVEN)))
    check(Program("of_a_dict", lambda: of_a_dict, steps, read, breaks=True, options={"dynamic": dynamic}), twin)


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
def test_slices_as_keys(dynamic: bool | None, twin: str) -> None:
    steps = [Step(place, lambda place: (torch.ones(2), place + 2)) for place in range(4)]
    check(Program("keys", lambda: keys, steps, frozenset({1, 2, 3}), breaks=True, options={"dynamic": dynamic}), twin)


class OwnInt(int):
    def __float__(self) -> float:
        return 99.0


class OwnFloat(float):
    pass


def test_the_stand_in_of_this_version_sums_as_python_does() -> None:
    ours = compensated_sum if sum([1e16, 1.0, -1e16]) else sum_
    pool = (0.1, 1e16, -1e16, 1e308, float("inf"), -0.0, 3, True, 2**62, 2**63, 2**70, 1e16j, complex(-0.0, 1.0), OwnInt(5), OwnFloat(-0.5))
    for start, *items in itertools.product((0, 0.5, True, -0.0, 2**63, complex(1e16, -0.0)), pool, pool, pool):
        assert repr(ours(items, start)) == repr(sum(items, start)), (items, start)


@pytest.mark.parametrize("items", [[0.5, 10**400], [1j, 10**400], [1j, "a"], [0.5, 1j, None]], ids=str)
def test_the_stand_in_of_this_version_refuses_what_python_does(items: list) -> None:
    ours, found = compensated_sum if sum([1e16, 1.0, -1e16]) else sum_, []
    for add in (ours, sum):
        with pytest.raises((OverflowError, TypeError)) as raised:
            add(items)
        found.append((type(raised.value), str(raised.value)))
    assert found[0] == found[1]


def test_the_errors_are_added_from_3_12_on() -> None:
    assert (compensated_sum([1e16, 1.0, -1e16]), sum_([1e16, 1.0, -1e16])) == (1.0, 0.0)
    assert sum([1e16, 1.0, -1e16]) == (sys.hexversion >= 0x30C0000)
