"""Arguments for which the counterpart in ``torch._numpy`` gives something else than NumPy's function: a call with them is not a part of a graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.arrays.functions import ArrayFunction
from fineline.tensor_ops.arrays.traced import NotTraced


def arrays_in(values: Any) -> list:
    """Returns the arrays and NumPy scalars among ``values`` and in lists and tuples among them."""
    found = []
    for v in values:
        if type(v) in (list, tuple):
            found += arrays_in(v)
        elif is_a(v, (np.ndarray, np.generic)):
            found.append(v)
    return found


def check_arguments(row: ArrayFunction, args: list, kwargs: dict, answer: Any) -> None:
    """Raises if PyTorch computes something else with these arguments. ``answer``: what NumPy gives."""
    check = _CHECKS.get(row.name.rpartition(".")[2])
    if check is not None:
        check(args, kwargs, answer)


def check_number(value: Any, dtype: Any) -> None:
    """Raises if PyTorch may not convert a number of Python to ``dtype`` as NumPy does, or fails at another time."""
    t, kind, narrow = type(value), dtype.kind, dtype.itemsize < (16 if dtype.kind == "c" else 8)
    if t is int and kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
        raise NotTraced("gets an int that does not fit its dtype")
    if t is float and kind in "fc" and math.isfinite(value) and abs(value) > float(np.finfo(dtype).max):
        raise NotTraced("gets a float that does not fit its dtype")
    if t in SYMBOLIC and narrow and (kind in "biu" or t is not torch.SymInt):
        raise NotTraced("gets a number that varies, and may not fit its dtype")


def _check_numbers(args: list, kwargs: dict, answer: Any) -> None:
    """Checks numbers that PyTorch converts to the dtype of the result."""
    for v in (*args, *kwargs.values()):
        check_number(v, answer.dtype)


def _check_decimals(args: list, kwargs: dict, answer: Any) -> None:
    """Checks that ints keep all their digits: PyTorch does not round ints."""
    decimals = args[1] if len(args) > 1 else kwargs.get("decimals", 0)
    if answer.dtype.kind in "iu" and not (type(decimals) is int and decimals >= 0):
        raise NotTraced("rounds ints")


def _check_order(args: list, kwargs: dict, answer: Any) -> None:
    """Checks that the order of equal items is defined."""
    if kwargs.get("kind") not in ("stable", "mergesort"):
        raise NotTraced("gives equal items in any order, unless it has kind='stable'")


def _check_weights(args: list, kwargs: dict, answer: Any) -> None:
    """Checks that there are no weights: NumPy raises for some."""
    if len(args) > 2 or kwargs.get("weights") is not None:
        raise NotTraced("has weights, which may raise errors")


def _check_quantiles(args: list, kwargs: dict, answer: Any) -> None:
    """Checks that the quantiles are numbers of Python: NumPy raises for some."""
    if arrays_in([*args[1:], *kwargs.values()]):
        raise NotTraced("gets quantiles from an array, which may raise errors")


_CHECKS: Mapping[str, Callable[[list, dict, Any], None]] = MappingProxyType(
    {
        **dict.fromkeys(["clip", "where", "full_like", "nan_to_num"], _check_numbers),
        **dict.fromkeys(["round", "around"], _check_decimals),
        **dict.fromkeys(["percentile", "quantile"], _check_quantiles),
        "argsort": _check_order,
        "average": _check_weights,
    }
)
