"""Floats and complex numbers are what their bits are: NaNs of each sign and payload, and zeros with a sign."""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import fineline


def of_bits(bits: int) -> float:
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


POSITIVE, NEGATIVE, PAYLOAD, OTHER = map(of_bits, (0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000001, 0xFFF80000DEADBEEF))
ORDERS = {
    "signs": (POSITIVE, NEGATIVE, POSITIVE, PAYLOAD, OTHER, NEGATIVE),
    "negative first": (NEGATIVE, POSITIVE, NEGATIVE),
    "zeros": (0.0, -0.0, 0.0, 1.5, -0.0, 2.5, 0.0),
    "varying": (1.5, 2.5, POSITIVE, NEGATIVE, -0.0, 0.0),
}
HOW: dict[str, dict] = {
    "plain": {},
    "dynamic": {"dynamic": True},
    "reference": {"options": {"evaluator": "reference"}},
    "fake": {"options": {"first_call": "compiled"}},
    "borders": {"options": {"force_graph_breaks": True}},
    "aot": {"backend": "aot_eager"},
}


def bits(v: float) -> str:
    return struct.pack("<d", v).hex()


def sign(v: float) -> float:
    return math.copysign(1.0, v)


@dataclasses.dataclass
class Box:
    v: Any


class Slot:
    __slots__ = ("v",)

    def __init__(self, v: float) -> None:
        self.v = v


READS: dict[str, tuple[Callable, Callable]] = {
    "argument": (lambda x, v: x * sign(v), lambda v: v),
    "bits": (lambda x, v: (x, bits(v)), lambda v: v),
    "given back": (lambda x, v: (x + 1, v, [v, (v,)]), lambda v: v),
    "tuple": (lambda x, v: x * sign(v[0]), lambda v: (v,)),
    "list": (lambda x, v: x * sign(v[0]), lambda v: [v]),
    "dict": (lambda x, v: x * sign(v["a"]), lambda v: {"a": v}),
    "nested": (lambda x, v: x * sign(v[0]["a"][0]), lambda v: ({"a": (v,)},)),
    "deque": (lambda x, v: x * sign(v[0]), lambda v: deque([v])),
    "key": (lambda x, v: x * sign(next(iter(v))), lambda v: {v: 1}),
    "set": (lambda x, v: x * sign(next(iter(v))), lambda v: {v}),
    "frozenset": (lambda x, v: x * sign(next(iter(v))), lambda v: frozenset({v})),
    "slice": (lambda x, v: x * sign(v.start), lambda v: slice(v, None)),
    "real part": (lambda x, v: x * sign(v.real), lambda v: complex(v, 0.0)),
    "imaginary part": (lambda x, v: x * sign(v.imag), lambda v: complex(0.0, v)),
    "complex in a tuple": (lambda x, v: x * sign(v[0].real), lambda v: (complex(v, 0.0),)),
    "attribute": (lambda x, v: x * sign(v.v), Box),
    "slot": (lambda x, v: x * sign(v.v), Slot),
    "float64": (lambda x, v: x * sign(v), np.float64),
    "float32": (lambda x, v: x * sign(v), np.float32),
    "complex128": (lambda x, v: x * sign(v.real), lambda v: np.complex128(complex(v, 0.0))),
    "default": (lambda x, v: x * v(), lambda v: lambda q=v: sign(q)),
    "closure": (lambda x, v: x * v(), lambda v: lambda: sign(v)),
    "partial": (lambda x, v: x * v(), lambda v: functools.partial(sign, v)),
    "negated": (lambda x, v: x * sign(-v), lambda v: v),
}
OPERATORS: dict[str, tuple[Callable, Callable]] = {
    "full": (lambda x, v: torch.full_like(x, v), lambda v: v),
    "tensor": (lambda x, v: torch.copysign(x, torch.tensor(v)), lambda v: v),
    "scalar": (lambda x, v: torch.copysign(x, v), lambda v: v),
    "sum": (lambda x, v: torch.copysign(x, x + v), lambda v: v),
    "where": (lambda x, v: torch.copysign(x, torch.where(x > 0, v, v)), lambda v: v),
    "fill": (lambda x, v: torch.copysign(x, torch.empty(2).fill_(v)), lambda v: v),
    "complex tensor": (lambda x, v: torch.copysign(x, torch.view_as_real(torch.tensor(v))[0]), lambda v: complex(v, 0.0)),
    "imaginary tensor": (lambda x, v: torch.copysign(x, torch.view_as_real(torch.tensor(v))[1]), lambda v: complex(1.0, v)),
    "complex sum": (lambda x, v: torch.copysign(x, torch.view_as_real(x * 0 + v)[..., 0]), lambda v: complex(v, 0.0)),
}


def exact(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.dtype, value.numpy().tobytes()
    if isinstance(value, (tuple, list)):
        return type(value), [exact(v) for v in value]
    return bits(value) if isinstance(value, float) else value


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", [*READS, *OPERATORS])
def test_numbers_are_told_apart_by_their_bits(name: str, order: str, how: str) -> None:
    if how == "aot" and name in OPERATORS:
        pytest.skip("AOTAutograd writes each NaN into its graphs as nan")
    fn, made = (READS | OPERATORS)[name]
    compiled = fineline.compile(fn, **{"backend": "eager", **HOW[how]})
    for v in ORDERS[order]:
        assert exact(compiled(torch.ones(2), made(v))) == exact(fn(torch.ones(2), made(v))), bits(v)
