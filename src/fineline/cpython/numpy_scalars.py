"""NumPy's scalar types, which are values like Python's numbers, and its functions from scalars to scalars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Any

import torch

from fineline.identity import IdentitySet
from fineline.numpy_support import np
from fineline.tables import attributes

_KINDS = "bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 longlong ulonglong complex64 complex128"
NUMPY_SCALARS: frozenset[type] = frozenset(attributes(np, _KINDS))
# The types that operators treat as Python's numbers. The functions below read the dtype when they make a tensor. (NumPy's bools are
# not treated so; of complex scalars, operators drop the imaginary part and warn.)
NUMBERS = NUMPY_SCALARS - {*attributes(np, "bool_ complex64 complex128")}
DTYPE_ASKERS = IdentitySet((torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor))
# Attributes that depend only on the type of a scalar.
OF_TYPE = frozenset({"item", "dtype", "ndim", "shape", "size", "itemsize", "nbytes"})
_FUNCTIONS = MappingProxyType(
    {
        "pure deep handler_first": "all amax amin any argmax argmin around average ceil clip dot gcd lcm max mean median min prod ptp round size std sum var",
        "pure deep": "isscalar",
    }
)
_METHODS = "all any astype conj item max mean min prod round sum tolist __format__ __str__ __repr__ __float__ __int__ __index__ __bool__"


def numpy_natives() -> Iterator[tuple[Callable[..., Any], str]]:
    """Yields NumPy's pure callables with their words; a call that returns an array breaks the graph."""
    for value in vars(np).values():
        if type(value) is np.ufunc:
            yield value, "pure deep handler_first"
    for words, names in _FUNCTIONS.items():
        yield from [(fn, words) for fn in attributes(np, names)]
    for cls in sorted(NUMPY_SCALARS, key=str):
        yield cls, "pure deep makes_value"
    for name in _METHODS.split():
        if (method := vars(np.generic).get(name)) is not None:
            yield method, "pure deep"
