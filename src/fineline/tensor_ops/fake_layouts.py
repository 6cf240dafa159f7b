"""Corrections for operators whose kernels give their results other strides than PyTorch's rules for fakes do: fakes get the kernels' strides."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._prims_common import make_contiguous_strides_for

from fineline.fake.fake_tensors import expression
from fineline.kinds import is_a
from fineline.tables import attributes


def laid_out(found: Tensor, strides: Any) -> Tensor:
    """Returns ``found``, an operator's result, with these strides."""
    return found if _same(found.stride(), strides) else found.as_strided(found.shape, tuple(strides))


def _strided(t: Any) -> bool:
    return is_a(t, Tensor) and t.layout is torch.strided and not t.is_nested


def _same(strides: Any, others: Any) -> bool:
    # Compares expressions, because comparing values would guard sizes.
    return [expression(n) for n in strides] == [expression(n) for n in others]


def _as_compared(fn: Callable) -> Callable:
    """Wraps an operator so that its result has the strides of an elementwise operator on its first two arguments."""

    def elementwise(*args: Any, **how: Any) -> Any:
        found = fn(*args, **how)
        both = [*args, *[how[name] for name in ("self", "input", "other") if name in how]][:2]
        if "out" in how or not is_a(both[0], Tensor) or not _strided(found):
            return found
        return laid_out(found, torch.eq(*both).stride())

    return elementwise


def _contiguous(fn: Callable) -> Callable:
    def contiguous(*args: Any, **how: Any) -> Any:
        found = fn(*args, **how)
        new = _strided(found) and found.device.type == "cpu" and "out" not in how and not any([found is a for a in args])
        return laid_out(found, make_contiguous_strides_for(found.shape)) if new else found

    return contiguous


def _of_its_format(fn: Callable) -> Callable:
    """Wraps an operator so that its result is channels-last if its first argument is, and contiguous otherwise."""

    def formatted(input: Tensor, *args: Any, **how: Any) -> Any:
        found = fn(input, *args, **how)
        if not _strided(found) or found.device.type != "cpu" or found is input:
            return found
        last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(input.dim())
        contiguous = _same(input.stride(), make_contiguous_strides_for(input.shape))
        if last is None or contiguous or not _same(input.stride(), _strides(input, last)):
            last = torch.contiguous_format
        return laid_out(found, _strides(found, last))

    return formatted


def _strides(t: Tensor, order: torch.memory_format) -> Any:
    return torch.empty(t.shape, device="meta", memory_format=order).stride()


def _power(fn: Callable, at: int = 0) -> Callable:
    """Wraps a power so that its result is contiguous if the base is a number, not a tensor. ``at``: the position of the base."""
    contiguous = _contiguous(fn)

    def power(*both: Any, **how: Any) -> Any:
        return (contiguous if len(both) > at and not is_a(both[at], Tensor) else fn)(*both, **how)

    return power


def _pad(input: Tensor, pad: Any, mode: str = "constant", value: Any = None) -> Tensor:
    padded: Callable = F.pad if mode in ("constant", "circular") else _of_its_format(F.pad)
    found: Tensor = padded(input, pad, mode, value)
    return found


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, **how: Any) -> Tensor:
    found: Tensor = torch.addr(input, vec1, vec2, **how)
    if "out" in how or type(how.get("beta")) not in (int, float) or how["beta"] != 0:
        return found
    # With beta == 0 the rule for fakes ignores ``input``, but the kernel's strides still depend on it.
    return laid_out(found, torch.addr(input, vec1, vec2).stride())


def cross_entropy(input: Tensor, target: Tensor, *args: Any, **how: Any) -> Tensor:
    of_classes = not target.is_floating_point() and not how.get("label_smoothing")
    found: Tensor = (_contiguous(F.cross_entropy) if of_classes else F.cross_entropy)(input, target, *args, **how)
    return found


def _ldexp(fn: Callable) -> Callable:
    """Wraps ``ldexp`` so that its result has the strides of an elementwise operator on ``input`` and a contiguous ``other``."""

    def ldexp(input: Tensor, other: Any, **how: Any) -> Tensor:
        found: Tensor = fn(input, other, **how)
        new = "out" not in how and is_a(other, Tensor) and _strided(found)
        return laid_out(found, torch.eq(input, torch.empty(other.shape, device=other.device)).stride()) if new else found

    return ldexp


def _spellings(names: str) -> list[Any]:
    return [fn for owner in (torch, Tensor) for fn in attributes(owner, names)]


_COMPARED = (
    "copysign div divide floor_divide heaviside logaddexp logaddexp2 logical_and logical_or logical_xor xlogy __floordiv__"
)
_FORMATTED = (F.batch_norm, torch.batch_norm, F.channel_shuffle, torch.channel_shuffle, F.max_unpool2d)
_LEVEL = (torch.normal, F.logsigmoid, F.rrelu, torch.rrelu, F.nll_loss)
LAYOUTS: Mapping[Any, Callable] = MappingProxyType(
    {
        **{fn: _as_compared(fn) for fn in (*_spellings(_COMPARED), torch.special.xlogy, operator.floordiv)},
        **{fn: _contiguous(fn) for fn in _LEVEL},
        **{fn: _of_its_format(fn) for fn in _FORMATTED},
        **{fn: _power(fn) for fn in (torch.pow, operator.pow, torch.float_power)},
        **{fn: _ldexp(fn) for fn in _spellings("ldexp")},
        **dict.fromkeys((torch.addr, Tensor.addr), addr),
        Tensor.__rpow__: _power(Tensor.__rpow__, 1),
        F.cross_entropy: cross_entropy,
        F.pad: _pad,
    }
)
