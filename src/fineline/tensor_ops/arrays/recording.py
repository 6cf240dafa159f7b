"""Runs ``torch._numpy`` on tensors of the graph: each operator that it calls becomes a node."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fineline.fx.recorder import NotForGraph
from fineline.kinds import is_a
from fineline.numpy_support import np
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops.arrays.functions import (
    OPERATORS,
    TAKES_DTYPE,
    ArrayFunction,
    counterpart_of_ufunc,
    torch_dtype,
    torch_numpy,
)
from fineline.tensor_ops.arrays.traced import TORCH_DTYPES, NotTraced, tensor_of
from fineline.torch_facts.callables import TENSOR_ATTRS, classify_torch
from fineline.tracing.interp import Interp

_PYTHON_NUMBERS = {torch.SymInt: int, torch.SymFloat: float, int: int, float: float, complex: complex}


class Recording(TorchFunctionMode):
    """The mode in which a function of ``torch._numpy`` runs: it sees each use of a tensor."""

    def __init__(self, interp: Interp) -> None:
        super().__init__()
        self._interp = interp

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        interp, tensors = self._interp, self._interp.tensors
        if getattr(func, "__name__", "") == "__get__":
            name = func.__self__.__name__
            return tensors.attribute(interp, args[0], name, TENSOR_ATTRS.get(name, "data"))
        kind = classify_torch(func)
        if kind == "op":
            if func in (torch.as_tensor, torch.tensor):
                kwargs = _with_dtype(args[0], kwargs)
            return tensors.operator(interp, func, list(args), kwargs, used=True)
        if kind in ("metadata", "query"):
            return interp.backing.run(interp, func, args, kwargs)
        raise NotForGraph(f"torch._numpy calls {getattr(func, '__name__', func)}")


def _with_dtype(values: Any, kwargs: dict | None) -> dict | None:
    """Returns the options of ``torch.as_tensor`` with the dtype that it has now: torch._numpy makes float64 the default dtype for this call only."""
    if is_a(values, Tensor) or (kwargs and kwargs.get("dtype") is not None):
        return kwargs
    types = _types_in(values)
    default = torch.get_default_dtype()
    if complex in types:
        dtype = torch.complex128 if default is torch.float64 else torch.complex64
    elif types & {float, torch.SymFloat}:
        dtype = default
    else:
        return kwargs
    if not types <= {bool, *_PYTHON_NUMBERS}:
        raise NotForGraph("torch._numpy makes a tensor of numbers and tensors")
    return {**(kwargs or {}), "dtype": dtype}


def _types_in(values: Any) -> set[type]:
    return set().union(*[_types_in(v) for v in values]) if type(values) in (list, tuple) else {type(values)}


def run(interp: Interp, row: ArrayFunction, fn: Any, args: list, kwargs: dict) -> Any:
    """Returns the tensor, or the list or tuple of tensors, that a NumPy function gives for arrays of the graph."""
    if type(fn) is np.ufunc and fn.signature is None:
        return _run_ufunc(interp, fn, args, kwargs)
    # The mode would see what the engine itself does with tensors.
    given = [_array(interp, a) for a in args]
    named = {k: torch_dtype(v) if k == "dtype" and v is not None else _array(interp, v) for k, v in kwargs.items()}
    if row.name in TAKES_DTYPE and len(given) > 1:
        given[1] = torch_dtype(args[1])
    counterpart = row.counterpart()
    with Recording(interp):
        result = counterpart(*given, **named)
    return _tensors(result)


def _array(interp: Interp, v: Any) -> Any:
    """Returns the argument of ``torch._numpy`` for an argument of NumPy."""
    t = type(v)
    if t is np.ndarray:
        return torch_numpy().ndarray(tensor_of(interp, v))
    if t is list or t is tuple:
        return t([_array(interp, x) for x in v])
    if is_a(v, np.generic):
        return torch_numpy().ndarray(_full(interp, v.item(), v.dtype.name))
    return v


def _full(interp: Interp, number: Any, dtype: str) -> Tensor:
    """Returns a tensor for a number, which is a constant."""
    if dtype not in TORCH_DTYPES:
        raise NotTraced(f"gets a {dtype}")
    result: Tensor = interp.tensors.operator(interp, torch.full, [(), number], {"dtype": TORCH_DTYPES[dtype]}, used=True)
    return result


def _tensors(result: Any) -> Any:
    if type(result) in (list, tuple):
        return type(result)([_tensors(x) for x in result])
    if type(result) is torch_numpy().ndarray:
        return result.tensor
    raise NotTraced(f"gives a {type(result).__name__}")


def _run_ufunc(interp: Interp, fn: Any, args: list, kwargs: dict) -> Tensor:
    """Computes a ufunc in the dtypes that NumPy computes it in."""
    if kwargs or len(args) != fn.nin or fn.nout != 1:
        raise NotTraced("has arguments that PyTorch's function has not")
    kinds = [_kind(a) for a in args]
    try:
        loop = fn.resolve_dtypes((*kinds, None))
    except TypeError:
        raise NotTraced("has no loop for these dtypes") from None
    if not all([dtype.name in TORCH_DTYPES for dtype in loop]):
        raise NotTraced(f"computes in {', '.join([dtype.name for dtype in loop])}")
    op = OPERATORS.get(fn)
    # PyTorch computes some powers, such as those of -0.5, by other functions if the exponent is a number.
    numbers = (op is not None, op is not None)
    if fn is np.power:
        args = [args[0], _exponent(args[1])]
        numbers = (True, _is_exact(interp, *args))
    operands = [_operand(interp, a, dtype, number) for a, dtype, number in zip(args, loop, numbers, strict=False)]
    if not any([is_a(a, Tensor) for a in operands]):
        raise NotTraced("gets no array")
    if op is not None:
        return _to(interp, interp.tensors.operator(interp, op, operands, None, used=True), loop[-1].name)
    impl = counterpart_of_ufunc(fn)
    with Recording(interp):
        result = impl(*operands)
    return _to(interp, result, loop[-1].name)


def _exponent(v: Any) -> Any:
    """Returns the exponent that NumPy computes with: one item of 0.5 for all powers is a square root, which differs from a power at -inf and -0.0."""
    if type(v) is np.ndarray and (v.ndim == 0 or v.shape[-1] == 1):
        raise NotTraced("gets an exponent that may make it a square root")
    return 0.5 if is_a(v, np.generic) and v == 0.5 else v


def _is_exact(interp: Interp, base: Any, exponent: Any) -> bool:
    """Returns whether PyTorch and NumPy compute powers of this number of Python alike for infinities and zeros too."""
    found = interp.tensors.arrays.traced.get(base)
    if found is not None and found.scalar:
        # Python's operator on a scalar of NumPy is C's pow.
        return type(exponent) in (int, torch.SymInt)
    return type(exponent) in (int, torch.SymInt) or (type(exponent) is float and exponent in (0.5, 1.0, 2.0))


def _kind(a: Any) -> Any:
    """Returns what NumPy promotes for an operand: a dtype, or the class of a number of Python."""
    if is_a(a, (np.ndarray, np.generic)):
        return a.dtype
    found = np.dtype(bool) if type(a) is bool else _PYTHON_NUMBERS.get(type(a))
    if found is None:
        raise NotTraced(f"gets a {type(a).__name__}")
    return found


def _operand(interp: Interp, a: Any, dtype: Any, number: bool) -> Any:
    """Returns an operand in the dtype of a ufunc's loop. ``number``: a number of Python may stay one."""
    if type(a) is np.ndarray:
        return _to(interp, tensor_of(interp, a), dtype.name)
    if is_a(a, np.generic):
        return _full(interp, a.astype(dtype).item(), dtype.name)
    if type(a) is not bool:
        if dtype.kind in "iu" and type(a) is int and not np.iinfo(dtype).min <= a <= np.iinfo(dtype).max:
            raise NotTraced("gets an int that its dtype has not")
        if dtype.kind in "iu" and dtype.itemsize < 8 and type(a) in SYMBOLIC:
            raise NotTraced("gets an int that varies, which its dtype may not have")
        if number and dtype.kind != "b":
            # An int is exact in a float of its loop, or is rounded by PyTorch as by NumPy.
            return float(a) if dtype.kind == "f" and type(a) is int and abs(a) < 2**53 else a
    if type(a) in SYMBOLIC:
        raise NotTraced("gets a number that varies")
    return _full(interp, a, dtype.name)


def _to(interp: Interp, t: Tensor, name: str) -> Tensor:
    if t.dtype is TORCH_DTYPES[name]:
        return t
    result: Tensor = interp.tensors.operator(interp, Tensor.to, [t, TORCH_DTYPES[name]], None, used=True)
    return result
