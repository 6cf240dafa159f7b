"""Complex and NumPy numbers that vary, for which no symbol stands: each value has a program at first; then what asks for it runs between two graphs."""

from __future__ import annotations

import cmath
from collections.abc import Callable
from typing import Any

import numpy as np
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


class Holder:
    def __init__(self, number: Any) -> None:
        self.number = number


# Where the number is read from; the rest of the container is read as well.
PLACES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "tuple": (lambda n: (n, 2), lambda held: held[0]),
    "inner tuple": (lambda n: (2, (n, 3)), lambda held: held[1][0]),
    "list": (lambda n: [n, 2], lambda held: held[0]),
    "dict": (lambda n: {"n": n}, lambda held: held["n"]),
    "attribute": (Holder, lambda held: held.number),
}
KINDS: dict[str, Callable[[int], Any]] = {
    "complex": lambda place: complex(300 + place, 1),
    "int64": lambda place: np.int64(300 + place),
    "float32": lambda place: np.float32(300.5 + place),
}


def from_place(place: str) -> Callable:
    read = PLACES[place][1]
    return lambda x, held: (x * read(held)).abs().cos()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_numbers_in_containers(place: str, kind: str, twin: str) -> None:
    steps = [Step(n, lambda n: (t(n), PLACES[place][0](KINDS[kind](n)))) for n in range(CALLS)]
    check(Program(f"{place} {kind}", lambda: from_place(place), steps, frozenset(range(LEARNED)), breaks=True, repeats=True, tolerance=1e-6), twin)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES)
def test_graphs_run_in_the_end_for_numbers_in_containers(place: str, kind: str) -> None:
    made, ran = graphs_of_each_call(from_place(place), [(torch.ones(4), PLACES[place][0](KINDS[kind](n))) for n in range(CALLS)])
    assert not any(made[LEARNED:]) and all(ran[LEARNED:]), (made, ran)


# C code that reads the whole tuple: it reads the number, whose guard must not be left out.
READERS: dict[str, Callable[[tuple], Any]] = {
    "sum": sum, "list": list, "hash": hash, "str": str, "max": lambda held: max(held, key=abs), "equal": lambda held: held == (301, 2),
    "key": lambda held: {held: 1}[held], "joined": lambda held: held + (1,), "reversed": lambda held: held[::-1], "contains": lambda held: 2 in held,
    "index": lambda held: held.index(2), "sorted": lambda held: sorted(held, key=abs), "itself": lambda held: held,
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", READERS)
def test_readers_of_the_container(reader: str, kind: str, twin: str) -> None:
    fn, steps = READERS[reader], [Step(n, lambda n: (t(n), (KINDS[kind](n), 2))) for n in range(6)]
    check(Program(f"{reader} {kind}", lambda: lambda x, held: (x.sin() * held[0], fn(held)), steps, frozenset(range(6)), breaks=True, repeats=True), twin)
