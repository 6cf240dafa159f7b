"""Arguments for which the counterpart in ``torch._numpy`` gives something else than NumPy's function: a call with them is not a part of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.arrays.functions import ArrayFunction
from fineline.tensor_ops.arrays.traced import NotTraced


def arrays_in(values: Any) -> list:
    """Returns the arrays and NumPy scalars among ``values`` and in lists and tuples among them."""
    return [
        a for v in values for a in (arrays_in(v) if type(v) in (list, tuple) else [v] if is_a(v, (np.ndarray, np.generic)) else [])
    ]  # fmt: skip


def check_arguments(row: ArrayFunction, args: list, kwargs: dict) -> None:
    """Raises if PyTorch computes something else with these arguments."""
    check = _CHECKS.get(row.name.rpartition(".")[2])
    if check is not None:
        check(args, kwargs)


def check_number(value: Any, dtype: Any) -> None:
    """Raises if PyTorch may not convert a number of Python to ``dtype`` as NumPy does, or fails at another time."""
    if dtype.kind in "iu":
        if type(value) is int and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            raise NotTraced("gets an int that its dtype has not")
        if type(value) in SYMBOLIC and dtype.itemsize < 8:
            raise NotTraced("gets a number that varies, which its dtype may not have")


def _check_numbers(args: list, kwargs: dict) -> None:
    """Checks numbers that PyTorch converts to the dtypes of the arrays beside them."""
    values = [*args, *kwargs.values()]
    for dtype in {a.dtype for a in arrays_in(values)}:
        for v in values:
            check_number(v, dtype)


_CHECKS: Mapping[str, Callable[[list, dict], None]] = MappingProxyType(dict.fromkeys(["clip"], _check_numbers))
