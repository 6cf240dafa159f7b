"""Complex numbers that vary, for which no symbol stands: each value has a program at first; then what asks for it runs between two graphs."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.oracle import Program, Step, check, t
from tests.shapes.varied import graphs_of_each_call

IN_TWINS = ("captured", "reference", "fake")
CALLS, LEARNED = 14, 10

# Of an int, and of a complex number that comes from outside.
OF_AN_INT: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "made": lambda x, n: (x * complex(0, n)).abs(),
    "product": lambda x, n: (x * (n * 1j)).abs(),
    "sum": lambda x, n: (x * (1j * n + 2)).abs(),
    "rotation": lambda x, n: (x * cmath.exp(1j * n)).abs(),
    "root": lambda x, n: (x * cmath.sqrt(-n)).abs(),
}
OF_A_COMPLEX: dict[str, Callable[[torch.Tensor, complex], Any]] = {
    "factor": lambda x, z: (x * z).abs(),
    "summand": lambda x, z: (x + z).abs(),
    "exponent": lambda x, z: (x**z).abs(),
    "filled": lambda x, z: torch.full((4,), z).abs() + x,
    "tensor": lambda x, z: (x * torch.tensor(z)).abs(),
    "twice": lambda x, z: (x * (z * 2)).abs(),
    "negative": lambda x, z: (x * -z).abs(),
    "absolute": lambda x, z: x * abs(z),
    "parts": lambda x, z: x * z.real + z.imag,
    "conjugate": lambda x, z: (x * z.conjugate()).abs(),
    "power": lambda x, z: (x * z**2).abs(),
    "compared": lambda x, z: x + 1 if z == 1j else x - 1,
    "truth": lambda x, z: x + 1 if z else x - 1,
    "text": lambda x, z: x + len(f"{z}"),
    "moved": lambda x, z: (x, z)[0],
}
ACTS = {**OF_AN_INT, **OF_A_COMPLEX}


def around(act: Callable) -> Callable:
    return lambda x, n: act(x.sin() + 1.5, n).cos()


def number(act: str, place: int) -> Any:
    return 3 + place if act in OF_AN_INT else complex(1 + place, 2 * place - 3)


@pytest.mark.parametrize("act", ACTS)
def test_results(act: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), number(act, place))) for place in range(CALLS)]
    check(Program(act, lambda: around(ACTS[act]), steps, frozenset(range(LEARNED)), breaks=True, repeats=True, tolerance=1e-6), twin)


@pytest.mark.parametrize("act", ACTS)
def test_graphs_run_in_the_end(act: str) -> None:
    made, ran = graphs_of_each_call(around(ACTS[act]), [(torch.linspace(0.25, 1.0, 4), number(act, place)) for place in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


def test_parts_are_symbols() -> None:
    made, ran = graphs_of_each_call(around(ACTS["parts"]), [(torch.ones(4), number("parts", place)) for place in range(2, CALLS)])
    assert not any(made[2:]) and set(ran[1:]) == {1}, (made, ran)


def test_signs_of_zeros() -> None:
    """A complex number with a zero is not one with another zero."""
    values = [complex(0.0, -0.0), complex(-0.0, 0.0), complex(0.0, 0.0), complex(-0.0, -0.0)]
    graphs_of_each_call(lambda x, z: (x * 2, str(z), z), [(torch.ones(2), z) for z in values * 3])
