"""Converts ``dynamic_shapes`` of torch.export to marks on the tensors among a call's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from fineline.kinds import is_a
from fineline.policy.dim_marks import DIMS, Mark


@contextmanager
def marked_shapes(spec: dict | tuple | list | None, args: tuple, kwargs: Mapping[str, object]) -> Iterator[None]:
    """Marks the sizes of the arguments in the block. PyTorch itself reports mistakes in ``spec``."""
    if spec is None:
        yield
        return
    values = [*args, *kwargs.values()]
    if is_a(spec, dict):
        # Names are in the order of the parameters, positional ones first.
        positional = [s for name, s in spec.items() if name not in kwargs]
        specs = [*positional[: len(args)], *[None] * (len(args) - len(positional)), *[spec.get(name) for name in kwargs]]
    else:
        specs = list(spec)
    with DIMS.for_a_while():
        for value, part in zip(values, specs, strict=False):
            _mark(value, part)
        yield


def _mark(value: object, spec: Any) -> None:
    if spec is None:
        return
    if is_a(value, Tensor):
        for d, dim in spec.items() if is_a(spec, dict) else enumerate(spec):
            mark = _mark_of(dim)
            if mark is not None:
                DIMS.set(value, d, mark)
    elif is_a(value, dict):
        for key, part in spec.items():
            _mark(value.get(key), part)
    elif is_a(value, (list, tuple)):
        for item, part in zip(value, spec, strict=False):
            _mark(item, part)


def _mark_of(dim: object) -> Mark | None:
    """Returns the mark for a ``Dim`` or one of its hints; None if the size gets no mark."""
    hint = getattr(getattr(dim, "type", None), "name", "")
    if dim is None or is_a(dim, int) or hint == "STATIC":
        return None
    if hint == "AUTO":
        return Mark("maybe")
    low, high = getattr(dim, "min", None), getattr(dim, "max", None)
    return Mark("dynamic", low if is_a(low, int) else None, high if is_a(high, int) else None)
