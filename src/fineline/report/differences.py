"""Differences between the results of eager code and those of compiled code, with a tolerance for each dtype."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from fineline.identity import IdentitySet
from fineline.kinds import is_users_class

# Of the largest number in a tensor: how much another order of the same operations may change a number.
TOLERANCES: Mapping[torch.dtype, float] = MappingProxyType(
    {
        torch.float64: 1e-9, torch.complex128: 1e-9, torch.float32: 1e-5, torch.complex64: 1e-5, torch.complex32: 2e-3, torch.float16: 2e-3,
        torch.bfloat16: 2e-2,
    }
)  # fmt: skip


_ATOMS = (bool, int, float, complex, str, bytes, type(None))


class Difference(NamedTuple):
    """The first difference between two results: where it is in them, its size and the tolerance (NaN if it is no number), and a text."""

    path: str
    size: float
    allowed: float
    text: str

    def __str__(self) -> str:
        return f"{self.path}: {self.text}"


class Noise(NamedTuple):
    """What explains a difference besides the rounding of a result itself.

    ``exact``: what double precision gives, if it is known; then a number may be four times as far from it as the expected one, or four roundings.
    ``moved``: the result for inputs that have been changed by a rounding; a number may be four times as far from the expected one as that.
    ``scale``: the size of numbers that may have been rounded on the way; tolerances are at least sixteen of their roundings.
    ``tolerance``: the least one, of the largest number in a tensor, because less exact numbers have been on the way.
    """

    exact: object = None
    moved: object = None
    scale: float = 0.0
    tolerance: float = 0.0


def first_difference(expected: object, actual: object, noise: Noise | None = None, path: str = "the result") -> Difference | None:
    """Returns the first difference of ``actual`` from ``expected``; None if there is none. Containers and attributes are compared one by one."""
    return _first(expected, actual, noise or Noise(), path, IdentitySet())


def tensors_in(value: object) -> Iterator[Tensor]:
    """Yields the tensors in a value, each once: items of containers, and attributes of users' objects."""
    seen: IdentitySet = IdentitySet()
    waiting = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, _ATOMS) or inner in seen:
            continue
        seen.add(inner)
        if isinstance(inner, Tensor):
            yield inner
        else:
            waiting += [item for _, item in _items(inner)][::-1]


def _first(expected: object, actual: object, noise: Noise, path: str, around: IdentitySet) -> Difference | None:
    """``around``: the objects that contain these, which may contain themselves."""
    exact, moved = [v if type(v) is type(expected) else None for v in (noise.exact, noise.moved)]
    noise = noise._replace(exact=exact, moved=moved)
    if isinstance(expected, Tensor) and isinstance(actual, Tensor):
        return _of_tensors(expected, actual, noise, path)
    if type(expected) is not type(actual):
        return _unlike(path, f"a {type(actual).__name__} instead of a {type(expected).__name__}")
    if isinstance(expected, _ATOMS) or expected in around:
        return _of_values(expected, actual, noise, path)
    pairs, others = list(_items(expected)), list(_items(actual))
    if len(pairs) != len(others):
        return _unlike(path, f"{len(others)} items instead of {len(pairs)}")
    around.add(expected)
    thirds = dict(_items(exact)), dict(_items(moved))
    for (name, one), (other_name, other) in zip(pairs, others, strict=True):
        if name != other_name:
            return _unlike(path, f"{other_name} instead of {name}")
        found = _first(one, other, noise._replace(exact=thirds[0].get(name), moved=thirds[1].get(name)), f"{path}{name}", around)
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
    elif is_users_class(type(value)) and not isinstance(value, (torch.nn.Module, type, Enum)):
        attributes = getattr(value, "__dict__", None)
        yield from [(f".{name}", item) for name, item in attributes.items()] if isinstance(attributes, dict) else []


def _unlike(path: str, text: str) -> Difference:
    return Difference(path, math.nan, math.nan, text)


def _of_values(expected: object, actual: object, noise: Noise, path: str) -> Difference | None:
    if isinstance(expected, (float, complex)) and isinstance(actual, (float, complex)):
        size = abs(expected - actual)
        moved = abs(noise.moved - expected) if isinstance(noise.moved, (float, complex)) else 0.0
        allowed = max(max(TOLERANCES[torch.float32], noise.tolerance) * abs(expected), 4 * moved)
        same = expected == actual or (expected != expected and actual != actual) or size <= allowed
        return None if same else Difference(path, size, allowed, f"{actual!r} instead of {expected!r}")
    if isinstance(expected, (int, str, bytes, bool, type(None))):
        return None if expected == actual else _unlike(path, f"{actual!r} instead of {expected!r}")
    # Of other objects only the class is compared: they need not define equality.
    return None


def _of_tensors(expected: Tensor, actual: Tensor, noise: Noise, path: str) -> Difference | None:
    facts: tuple[Callable[[Tensor], object], ...] = (lambda t: tuple(t.shape), lambda t: t.dtype, lambda t: t.device, lambda t: t.layout)
    for name, fact in zip(("size", "dtype", "device", "layout"), facts, strict=True):
        if fact(expected) != fact(actual):
            return _unlike(path, f"{name} {fact(actual)} instead of {fact(expected)}")
    with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
        return _of_numbers(expected.detach(), actual.detach(), noise, path)


def _of_numbers(expected: Tensor, actual: Tensor, noise: Noise, path: str) -> Difference | None:
    if expected.layout is not torch.strided:
        expected, actual, noise = expected.to_dense(), actual.to_dense(), noise._replace(exact=None, moved=None)
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

    def distance(a: Tensor, b: Tensor) -> float:
        return float((a - b)[finite].abs().max())

    own = float(one[finite].abs().max())
    usual, rounding = TOLERANCES.get(expected.dtype, 0.1), torch.finfo(expected.dtype).eps
    tolerance = max(usual, noise.tolerance)
    # If less exact numbers have been on the way, their roundings count.
    on_the_way = max(16 * rounding, noise.tolerance if noise.tolerance > usual else 0.0) * noise.scale
    size, allowed = distance(one, other), max(tolerance * own, on_the_way)
    exact, moved = noise.exact, noise.moved
    if isinstance(exact, Tensor) and exact.shape == one.shape and exact.dtype == wide:
        best = exact.to(one.device)
        error = distance(one, best)
        # Both are rounded: the distances from what double precision gives count. If it gives something else, it has drawn other random numbers.
        if error <= 100 * tolerance * own:
            size, allowed = distance(other, best), 4 * max(error, rounding * own)
    if isinstance(moved, Tensor) and moved.shape == one.shape and moved.dtype == expected.dtype:
        sensitive = distance(moved.to(wide), one)
        allowed = max(allowed, 4 * sensitive) if math.isfinite(sensitive) else allowed
    return None if size <= allowed else Difference(path, size, allowed, f"the largest difference is {size:.3g}, allowed are {allowed:.3g}")


def _infinite(t: Tensor) -> Tensor:
    return torch.where(t.isinf(), t.real.sign() if t.is_complex() else t.sign(), 0)


class Precisions(TorchDispatchMode):
    """Notes the least exact type of the numbers that operators make: under autocast, float32 results are no more exact than bfloat16 ones."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.tolerance = 0.0

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        return True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(
        self, func: Callable, types: Sequence[type], args: Sequence[object] = (), kwargs: Mapping[str, object] | None = None
    ) -> object:
        made = func(*args, **(kwargs or {}))
        for t in tensors_in(made):
            self.tolerance = max(self.tolerance, TOLERANCES.get(t.dtype, 0.0))
        return made
