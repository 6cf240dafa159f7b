"""The layout of an operator's result, kept without the tensor: enough to make a fake tensor like it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from fineline.guards.native_core import CORE
from fineline.kinds import is_a


class Layout(NamedTuple):
    """The metadata that a fake tensor takes from a real one. Sizes and strides may be symbolic."""

    shape: tuple
    stride: tuple
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


_PLAIN = frozenset({Tensor, torch.nn.Parameter, FakeTensor})


def layout_of_in_python(t: Tensor) -> Layout | None:
    """Returns the layout of a tensor; None if it is not strided, or is nested or quantized."""
    with torch._C.DisableTorchFunction():
        if t.layout is not torch.strided or t.is_nested or t.is_quantized:
            return None
        # ``device`` of a fake tensor would call its mode, which others may see.
        device = t.fake_device if is_a(t, FakeTensor) else t.device
        return Layout(t.shape, t.stride(), t.dtype, device, t.requires_grad)


def _layout_through_python(out: Any) -> Any:
    t = type(out)
    if t in _PLAIN:
        return layout_of_in_python(out)
    if (t is list or is_a(out, tuple)) and out:
        return [layout_of(x) for x in out]
    return None


_layout_natively: Callable[[Any], Any] = (lambda out: NotImplemented) if CORE is None else CORE.layout_of
# The types of the layout of one tensor.
LAYOUTS: tuple[type, ...] = (Layout,) if CORE is None else (Layout, CORE.Layout)


def layout_of(out: Any) -> Any:
    """Returns the layout of a tensor, or a list of layouts for a list or tuple; None for any other object."""
    found = _layout_natively(out)
    return _layout_through_python(out) if found is NotImplemented else found


def fake_of(layout: Any, mode: FakeTensorMode) -> Any:
    """Returns a fake tensor with that layout, or a tuple of them; None if a layout is not known. Call it in ``mode``."""
    if type(layout) is list:
        fakes = tuple([fake_of(x, mode) for x in layout])
        return None if any([fake is None for fake in fakes]) else fakes
    if layout is None:
        return None
    fake = torch.empty_strided(layout.shape, layout.stride, dtype=layout.dtype, device=layout.device)
    return fake.requires_grad_() if layout.requires_grad and (layout.dtype.is_floating_point or layout.dtype.is_complex) else fake
