"""NumPy's functions that make arrays of a size: in the graph, an operator of PyTorch makes the memory of an array whose size varies.

With fixed sizes the arrays are constants, but for ``empty``, which gives other items each time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.arithmetic import decided, numbers
from fineline.tables import attributes
from fineline.tensor_ops.arrays import samples, traced
from fineline.tensor_ops.arrays.arguments import check_number
from fineline.tensor_ops.arrays.samples import Samples
from fineline.tensor_ops.arrays.traced import TORCH_DTYPES, NotTraced
from fineline.tracing.interp import Interp

_CPU = torch.device("cpu")
# The numbers of Python that NumPy converts to each kind of dtype without a loss.
_INTS = (bool, int, torch.SymInt)
_FILLS = MappingProxyType({"b": (bool,), "i": _INTS, "u": _INTS, "f": (*_INTS, float), "c": (*_INTS, float, complex)})
# By dtype: up to these numbers each number of a range, and each sum that NumPy or PyTorch computes on the way, is exact.
_EXACT = MappingProxyType({"int32": 2**30, "int64": 2**53, "float32": 2**23, "float64": 2**53})


def has_maker(fn: Any, values: Any) -> bool:
    """Returns whether a call with these arguments makes an array that the graph may make, and that is no constant."""
    return fn in MAKERS and (fn in _UNFILLED or any([True for v in values for _ in numbers(v)]))


def make(interp: Interp, fn: Any, args: list, kwargs: dict) -> Any:
    """Records the operators that make an array; returns its stand-in."""
    like = Samples(interp)
    given, named = [like.like(a) for a in args], {k: like.like(v) for k, v in kwargs.items()}
    if _count(fn, [*given, *named.values(), 0]) * 8 > samples.MOST:
        raise NotTraced(f"makes an array of more than {samples.MOST} bytes")
    answer = like.answer(fn, given, named)
    if type(answer) is not np.ndarray or answer.dtype.name not in TORCH_DTYPES or not answer.dtype.isnative:
        raise NotTraced(f"gives a {answer.dtype.name}")
    if {*named} & {"device", "like"} or named.get("order", "C") != "C":
        raise NotTraced("has other options than a dtype")
    traced.begin(interp)
    result = MAKERS[fn](interp, answer.dtype, *args, **{k: v for k, v in kwargs.items() if k != "order"})
    fake = interp.backing.memory(interp, result)
    if not samples.agrees(answer, fake) or not samples.strides_agree(answer, samples.layout(fake)[1]):
        raise NotTraced("gives another dtype, other sizes or strides in PyTorch")
    return traced.add(interp, result)


def _count(fn: Any, given: list) -> float:
    """Returns how many items an array has, or more: the shape comes first."""
    if type(given[0]) in (tuple, list, torch.Size):
        return math.prod([abs(n) for n in given[0] if type(n) is int])
    sides = [abs(n) for n in given[:2] if type(n) in (int, float)]
    if fn in _RANGES or not sides:
        return max(sides, default=0)
    return sides[0] * sides[-1] if fn in _SQUARE else sides[0]


def _run(interp: Interp, fn: Any, args: list, dtype: Any) -> Tensor:
    options = {"dtype": TORCH_DTYPES[dtype.name], "device": _CPU}
    result: Tensor = interp.tensors.operator(interp, fn, args, options, used=True)
    return result


def _size(n: Any) -> Any:
    """Returns a size, guarded: NumPy raises an exception for a negative one."""
    if type(n) is torch.SymInt:
        _decide(n >= 0)
        return n
    return int(n)


def _sizes(shape: Any) -> list[Any]:
    return [_size(n) for n in (shape if type(shape) in (tuple, list, torch.Size) else (shape,))]


def _decide(condition: Any) -> bool:
    """Returns the truth of a condition on sizes, guarded."""
    found = decided(condition) if type(condition) is torch.SymBool else bool(condition)
    if found is None:
        raise NotTraced("gets a number that only the graph knows")
    return found


def _of_shape(op: Any) -> Callable[..., Tensor]:
    def made(interp: Interp, result: Any, shape: Any, dtype: Any = None) -> Tensor:
        return _run(interp, op, [_sizes(shape)], result)

    return made


def _empty_like(interp: Interp, result: Any, prototype: Any, dtype: Any = None) -> Tensor:
    if type(prototype) is not np.ndarray:
        raise NotTraced(f"gets a {type(prototype).__name__}")
    known = interp.tensors.arrays.constant(interp, prototype)
    sizes = prototype.shape if known else traced.sizes_of(interp, traced.tensor_of(interp, prototype))
    return _run(interp, torch.empty, [list(sizes)], result)


def _full(interp: Interp, result: Any, shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    sizes, value = _sizes(shape), fill_value
    if type(value) is np.ndarray:
        return _spread(interp, result, sizes, value)
    value = value.item() if is_a(value, np.generic) else value
    if type(value) not in _FILLS[result.kind]:
        raise NotTraced(f"fills an array of dtype {result.name} with a {type(value).__name__}")
    check_number(value, result)
    return _run(interp, torch.full, [sizes, value], result)


def _spread(interp: Interp, result: Any, sizes: list[Any], value: Any) -> Tensor:
    """Returns an array that contains another one, or the scalar that it stands for, over and over."""
    if value.dtype != result:
        raise NotTraced("fills an array with one of another dtype")
    wide = interp.tensors.operator(interp, Tensor.expand, [traced.tensor_of(interp, value), sizes], None, used=True)
    filled: Tensor = interp.tensors.operator(interp, Tensor.clone, [wide], {"memory_format": torch.contiguous_format}, used=True)
    return filled


def _eye(interp: Interp, result: Any, N: Any, M: Any = None, k: Any = 0, dtype: Any = None) -> Tensor:
    if type(k) is not int or k != 0:
        raise NotTraced("has ones on another diagonal")
    return _run(interp, torch.eye, [_size(N), _size(N if M is None else M)], result)


def _identity(interp: Interp, result: Any, n: Any, dtype: Any = None) -> Tensor:
    return _eye(interp, result, n)


def _arange(interp: Interp, result: Any, start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    first, last, by = (0, start, step) if stop is None else (start, stop, step)
    first, last, by = [_whole(v) for v in (first, last, 1 if by is None else by)]
    most = _EXACT.get(result.name)
    if most is None or type(by) is not int:
        raise NotTraced(f"counts in {result.name}" if most is None else "has a step that varies")
    if not all([_decide(v <= most) and _decide(v >= -most) for v in (first, last, by)]):
        raise NotTraced(f"counts to a number that {result.name} may not have")
    if _decide(last < first if by > 0 else first < last):
        # PyTorch raises an exception for it.
        return _run(interp, torch.empty, [[0]], result)
    return _run(interp, torch.arange, [first, last, by], result)


def _whole(v: Any) -> Any:
    """Returns an int for a number of a range: only of whole numbers, PyTorch's and NumPy's sums are equal."""
    v = v.item() if is_a(v, np.generic) else v
    if type(v) is float and v.is_integer():
        return int(v)
    if type(v) not in (int, torch.SymInt):
        raise NotTraced(f"counts by a {type(v).__name__}")
    return v


MAKERS: Mapping[Any, Callable[..., Tensor]] = MappingProxyType(
    {
        fn: maker
        for name, maker in (
            ("zeros", _of_shape(torch.zeros)), ("ones", _of_shape(torch.ones)), ("empty", _of_shape(torch.empty)),
            ("empty_like", _empty_like), ("full", _full), ("eye", _eye), ("identity", _identity), ("arange", _arange),
        )
        for fn in attributes(np, name)
    }
)  # fmt: skip
_UNFILLED, _RANGES = frozenset(attributes(np, "empty empty_like")), frozenset(attributes(np, "arange"))
_SQUARE = frozenset(attributes(np, "eye identity"))
