"""Replacements, on fake tensors only, for operators whose C code asks for the value of each size; graphs contain the operators themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for
from torch._subclasses.fake_tensor import UnsupportedOperatorException

from fineline.tensor_ops.fake_layouts import LAYOUTS, laid_out


def _spaced(fn: Callable) -> Callable:
    def spaced(start: Any, end: Any, steps: Any = None, *more: Any, out: Any = None, **how: Any) -> Tensor:
        """Makes an uninitialized tensor with ``steps`` elements if ``steps`` is a symbol and the bounds are numbers; otherwise calls ``fn``."""
        if out is not None or type(steps) is not torch.SymInt or not {type(start), type(end)} <= {int, float, torch.SymInt, torch.SymFloat}:
            base = {} if out is None else {"out": out}
            found: Tensor = fn(start, end, *(() if steps is None else (steps,)), *more, **base, **how)
            return found
        how.pop("base", None)
        return torch.empty(steps, **how)

    return spaced


def _window(fn: Callable) -> Callable:
    def window(length: Any, *more: Any, **how: Any) -> Tensor:
        if type(length) is not torch.SymInt:
            found: Tensor = fn(length, *more, **how)
            return found
        return torch.empty(length, **{k: v for k, v in how.items() if k in ("dtype", "layout", "device", "pin_memory", "requires_grad")})

    return window


def kron(input: Tensor, other: Tensor) -> Tensor:
    n = max(input.dim(), other.dim())
    a = [1] * (n - input.dim()) + list(input.shape)
    b = [1] * (n - other.dim()) + list(other.shape)
    each = input.reshape([x for d in a for x in (d, 1)]) * other.reshape([x for d in b for x in (1, d)])
    return each.reshape([x * y for x, y in zip(a, b, strict=True)])


def max_pool1d(
    input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:  # fmt: skip
    def along(n: Any, other: int) -> tuple:
        return other, n[0] if type(n) in (tuple, list) else n

    steps = along(stride, 1) if stride not in (None, [], ()) else None
    pool: Callable = F.max_pool2d
    found = pool(input.unsqueeze(-2), along(kernel_size, 1), steps, along(padding, 0), along(dilation, 1), ceil_mode, return_indices)
    if return_indices:
        return tuple([t.squeeze(-2) for t in found])
    found = found.squeeze(-2)
    # Without gradients, the CPU runs another kernel, whose result is contiguous.
    own = input.device.type == "cpu" and not (input.requires_grad and torch.is_grad_enabled())
    return laid_out(found, make_contiguous_strides_for(found.shape)) if own else found


def _dropout(fn: Callable) -> Callable:
    def dropout(*args: Any, **how: Any) -> Any:
        return _as_given(fn(*args, **how), *args, **how)

    return dropout


def _as_given(found: Any, input: Any, p: Any = 0.5, train: Any = True, inplace: Any = False, *, training: Any = True) -> Any:
    """Returns the result of a dropout: its input if it changes nothing, because PyTorch's rule for symbolic sizes would return a copy."""
    return input if p == 0 or not (train and training) else found


def native_dropout(input: Tensor, p: Any, train: Any) -> Any:
    if p == 0 or not train:
        # Here the fake rule returns the argument itself, but the kernel returns a copy.
        raise UnsupportedOperatorException(torch.ops.aten.native_dropout.default)
    return torch.native_dropout(input, p, train)


def _itself(input: Tensor) -> Tensor:
    return input


_aten = torch.ops.aten
FAKE_FORMS: Mapping[Any, Callable] = MappingProxyType(
    {
        **LAYOUTS,
        torch.kron: kron,
        Tensor.kron: kron,
        F.max_pool1d: max_pool1d,
        torch.max_pool1d: max_pool1d,
        **{fn: _dropout(fn) for fn in (F.dropout, torch.dropout, _aten.dropout, _aten.dropout.default)},
        **dict.fromkeys((torch.native_dropout, _aten.native_dropout, _aten.native_dropout.default), native_dropout),
        **dict.fromkeys((_aten.lift, _aten.lift.default, _aten.lift_fresh, _aten.lift_fresh.default), _itself),
        **{fn: _spaced(fn) for fn in (torch.linspace, torch.logspace)},
        **{
            fn: _window(fn)
            for fn in (torch.hann_window, torch.hamming_window, torch.blackman_window, torch.bartlett_window, torch.kaiser_window)
        },
    }
)
