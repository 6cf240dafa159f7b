"""Differences between the results of eager code and those of compiled code, with a tolerance for each dtype."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

# Of the largest number in a tensor: how much another order of the same operations may change a number.
TOLERANCES: Mapping[torch.dtype, float] = MappingProxyType(
    {
        torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-5, torch.complex64: 1e-5, torch.complex32: 2e-3, torch.float16: 2e-3,
        torch.bfloat16: 2e-2,
    }
)  # fmt: skip


class Difference(NamedTuple):
    """The first difference between two results: where it is in them, its size and the tolerance (NaN if it is no number), and a text."""

    path: str
    size: float
    allowed: float
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


def first_difference(expected: object, actual: object, exact: object = None, path: str = "the result", scale: float = 0.0) -> Difference | None:
    """Returns the first difference of ``actual`` from ``expected``; None if there is none. Containers are compared item by item.

    ``exact``: what double precision gives, if it is known; then a number may be four times as far from it as the expected one, or four roundings.
    ``scale``: the size of numbers that may have been rounded on the way; tolerances are at least sixteen of their roundings.
    """
    exact = exact if type(exact) is type(expected) else None
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        return _of_tensors(expected, actual, exact if isinstance(exact, Tensor) else None, path, scale)
    if type(expected) is not type(actual):
        return _unlike(path, f"a {type(actual).__name__} instead of a {type(expected).__name__}")
    pairs, lengths = list(_items(expected)), (len(list(_items(expected))), len(list(_items(actual))))
    if lengths[0] != lengths[1]:
        return _unlike(path, f"{lengths[1]} items instead of {lengths[0]}")
    if not pairs and not isinstance(expected, (list, tuple, dict, set, frozenset)):
        return _of_values(expected, actual, path)
    third = dict(_items(exact))
    for (name, one), (other_name, other) in zip(pairs, _items(actual), strict=True):
        if name != other_name:
            return _unlike(path, f"{other_name} instead of {name}")
        found = first_difference(one, other, third.get(name), f"{path}{name}", scale)
        if found is not None:
            return found
    return None


def _items(value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, (list, tuple)):
        yield from [(f"[{i}]", item) for i, item in enumerate(value)]
    elif isinstance(value, dict):
        yield from [(f"[{key!r}]", item) for key, item in value.items()]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield from [(f".{field.name}", getattr(value, field.name, None)) for field in dataclasses.fields(value)]


def _unlike(path: str, text: str) -> Difference:
    return Difference(path, math.nan, math.nan, text)


def _of_values(expected: object, actual: object, path: str) -> Difference | None:
    if isinstance(expected, (float, complex)) and isinstance(actual, (float, complex)):
        size = abs(expected - actual)
        allowed = TOLERANCES[torch.float32] * abs(expected)
        same = expected == actual or (expected != expected and actual != actual) or size <= allowed
        return None if same else Difference(path, size, allowed, f"{actual!r} instead of {expected!r}")
    if isinstance(expected, (int, str, bytes, bool, type(None))):
        return None if expected == actual else _unlike(path, f"{actual!r} instead of {expected!r}")
    # Of other objects only the class is compared: they need not define equality.
    return None


def _of_tensors(expected: Tensor, actual: Tensor, exact: Tensor | None, path: str, scale: float) -> Difference | None:
    facts: tuple[Callable[[Tensor], object], ...] = (lambda t: tuple(t.shape), lambda t: t.dtype, lambda t: t.device, lambda t: t.layout)
    for name, fact in zip(("size", "dtype", "device", "layout"), facts, strict=True):
        if fact(expected) != fact(actual):
            return _unlike(path, f"{name} {fact(actual)} instead of {fact(expected)}")
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        return _of_numbers(expected.detach(), actual.detach(), exact, path, scale)


def _of_numbers(expected: Tensor, actual: Tensor, exact: Tensor | None, path: str, scale: float) -> Difference | None:
    if expected.layout is not torch.strided:
        expected, actual, exact = expected.to_dense(), actual.to_dense(), None
    if not (expected.is_floating_point() or expected.is_complex()):
        wrong = int((expected != actual).sum())
        return _unlike(path, f"{wrong} of {expected.numel()} items differ") if wrong else None
    if not expected.numel() or torch.equal(expected, actual):
        return None
    wide = torch.complex128 if expected.is_complex() else torch.float64
    one, other = expected.to(wide), actual.to(wide)
    if not torch.equal(one.isnan(), other.isnan()) or not torch.equal(_infinite(one), _infinite(other)):
        return Difference(path, math.inf, 0.0, "NaN or infinity in other places")
    finite = one.isfinite()
    if not bool(finite.any()):
        return None
    own = float(one[finite].abs().max())
    size = float((one - other)[finite].abs().max())
    tolerance = TOLERANCES.get(expected.dtype, 0.1)
    rounding = torch.finfo(expected.dtype).eps
    allowed = max(tolerance * own, 16 * rounding * scale)
    if exact is not None and exact.shape == one.shape and exact.dtype == wide:
        best = exact.to(one.device)
        error = float((one - best)[finite].abs().max())
        # Both are rounded: the distances from what double precision gives count. If it gives something else, it has drawn other random numbers.
        if error <= 100 * tolerance * own:
            size, allowed = float((other - best)[finite].abs().max()), 4 * max(error, rounding * own)
    return None if size <= allowed else Difference(path, size, allowed, f"the largest difference is {size:.3g}, allowed are {allowed:.3g}")


def _infinite(t: Tensor) -> Tensor:
    return torch.where(t.isinf(), t.real.sign() if t.is_complex() else t.sign(), 0)
