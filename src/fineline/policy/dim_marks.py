"""Marks on the sizes of tensors: which may vary, within which bounds, and which may not; stored outside of the tensors."""

from __future__ import annotations

import operator
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple, SupportsIndex

from torch import Tensor

from fineline.errors import BadArgument
from fineline.kinds import is_a


class Mark(NamedTuple):
    """A mark on one dimension, of the kind "dynamic", "maybe", "static" or "unbacked"."""

    kind: str
    min: int | None = None
    max: int | None = None

    def check(self, size: int, index: int) -> None:
        """Raises `BadArgument` for bounds that contradict each other, or that the size itself violates."""
        bounds = [bound for bound in (self.min, self.max) if bound is not None]
        for bound in bounds:
            if not is_a(bound, int) or bound < 0:
                raise BadArgument(f"min and max are sizes or None, not {bound!r}")
        if len(bounds) == 2 and bounds[0] > bounds[1]:
            raise BadArgument(f"min={self.min} is above max={self.max}")
        if (self.min is not None and size < self.min) or (self.max is not None and size > self.max):
            raise BadArgument(f"dimension {index} has the size {size}, which is not between min={self.min} and max={self.max}")


class DimTable:
    """Marks by tensor identity; they die with the tensor."""

    def __init__(self) -> None:
        self._marks: dict[int, tuple[weakref.ref, dict[int, Mark]]] = {}

    def __bool__(self) -> bool:
        return bool(self._marks)

    def of(self, t: Tensor) -> Mapping[int, Mark]:
        """Returns the marks of a tensor by dimension: fineline's, and those of ``torch._dynamo.mark_dynamic`` and similar functions."""
        found = self._marks.get(id(t))
        marks = dict(found[1]) if found is not None and found[0]() is t else {}
        return {**_theirs(t), **marks} if t.__dict__ else marks

    def set(self, t: Tensor, index: SupportsIndex | list | tuple | None, mark: Mark) -> None:
        if not is_a(t, Tensor):
            raise BadArgument(f"a {type(t).__name__} has no dimensions to mark", id="FL217")
        indices = [_dimension(t, i) for i in (index if is_a(index, (list, tuple)) else range(t.dim()) if index is None else [index])]
        for i in indices:
            mark.check(t.shape[i], i)
        table = self._marks
        key = id(t)
        if key not in table or table[key][0]() is not t:
            table[key] = (weakref.ref(t, lambda _: table.pop(key, None)), {})
        for i in indices:
            table[key][1][i] = mark

    @contextmanager
    def for_a_while(self) -> Iterator[None]:
        """Removes the marks that are set in the block at its end."""
        before = {key: (ref, dict(marks)) for key, (ref, marks) in self._marks.items()}
        try:
            yield
        finally:
            self._marks.clear()
            self._marks.update({key: entry for key, entry in before.items() if entry[0]() is not None})

    def clear(self) -> None:
        self._marks.clear()


def _dimension(t: Tensor, index: SupportsIndex) -> int:
    """Returns the dimension of ``t`` for ``index``, counted from 0; raises `BadArgument` if there is none."""
    try:
        i = operator.index(index)
    except TypeError:
        raise BadArgument(f"a dimension is an integer, not {index!r}", id="FL217") from None
    if not -t.dim() <= i < t.dim():
        raise BadArgument(f"dimension {i} of a tensor of {t.dim()} dimensions", id="FL217")
    return i % t.dim()


_THEIRS = {
    "_dynamo_weak_dynamic_indices": "maybe",
    "_dynamo_static_indices": "static",
    "_dynamo_unbacked_indices": "unbacked",
    "_dynamo_dynamic_indices": "dynamic",
}


def _theirs(t: Tensor) -> dict[int, Mark]:
    marks = {}
    for name, kind in _THEIRS.items():
        for i in t.__dict__.get(name, ()):
            marks[i % max(t.dim(), 1)] = Mark(kind)
    for span in t.__dict__.get("_dynamo_dynamic_range", ()):
        marks[span.dim % max(t.dim(), 1)] = Mark("dynamic", span.min, span.max)
    return marks


DIMS = DimTable()


def mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...], *, min: int | None = None, max: int | None = None) -> None:
    """Declares that size ``index`` of ``t`` varies (between ``min`` and ``max``): it is symbolic from the first capture on.

    Negative indices count from the end. If captured code fixes the size to one value, an error shows its line.
    """
    DIMS.set(t, index, Mark("dynamic", min, max))


def maybe_mark_dynamic(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Marks a size as dynamic like `mark_dynamic`, but if code fixes the size, fineline guards it without an error."""
    DIMS.set(t, index, Mark("maybe"))


def mark_static(t: Tensor, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Declares that size ``index`` of ``t`` (None: every size) is captured as a constant, even under ``dynamic=True``."""
    indices: list | tuple | None = index if index is None or is_a(index, (list, tuple)) else [index]
    if is_a(t, Tensor):
        # mark_dynamic takes precedence.
        dynamic = [i for i, mark in DIMS.of(t).items() if mark.kind == "dynamic"]
        indices = [i for i in (range(t.dim()) if indices is None else indices) if _dimension(t, i) not in dynamic]
    DIMS.set(t, indices, Mark("static"))


def mark_unbacked(t: Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Declares that nothing may be assumed about size ``index`` of ``t``: code that needs its value is an error."""
    DIMS.set(t, index, Mark("unbacked"))
