"""The layout of what an operator gave, kept without the tensor: enough to make a fake one of it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fineline.kinds import is_a


class Layout(NamedTuple):
    """What a fake tensor takes of a real one. Sizes and strides may be symbolic."""

    shape: torch.Size
    stride: tuple
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


_BASE: Any = torch._C.TensorBase
_PLAIN = frozenset({Tensor, torch.nn.Parameter, FakeTensor})
_QUANTIZED = frozenset({torch.quint8, torch.qint8, torch.qint32, torch.quint4x2, torch.quint2x4})
_size, _stride = _BASE.size, _BASE.stride
_layout, _is_nested, _dtype, _device, _requires_grad = [
    _BASE.__dict__[name].__get__ for name in ("layout", "is_nested", "dtype", "device", "requires_grad")
]


def layout_of(out: Any) -> Any:
    """Returns the layout of a strided tensor that is not quantized, or those of a list's; None of anything else."""
    t = type(out)
    if t in _PLAIN:
        with torch._C.DisableTorchFunction():
            if _layout(out) is not torch.strided or _is_nested(out):
                return None
            dtype = _dtype(out)
            # A fake tensor would ask its mode, which others may see.
            device = out.fake_device if t is FakeTensor else _device(out)
            return None if dtype in _QUANTIZED else Layout(_size(out), _stride(out), dtype, device, _requires_grad(out))
    if (t is list or is_a(out, tuple)) and out:
        return [layout_of(x) for x in out]
    return None


def fake_of(layout: Any, mode: FakeTensorMode) -> Any:
    """Returns a fake tensor of that layout, or a tuple of them; None where one is not known. Call it in ``mode``."""
    if type(layout) is list:
        fakes = tuple([fake_of(x, mode) for x in layout])
        return None if any([fake is None for fake in fakes]) else fakes
    if layout is None:
        return None
    fake = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=layout.device)
    return fake.requires_grad_() if layout.requires_grad and (layout.dtype.is_floating_point or layout.dtype.is_complex) else fake
