"""Calls of PyTorch's old tensor types, such as `torch.LongTensor`: a graph contains the functions that make the same tensors instead."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from fineline.frames.frame import Frame
from fineline.fx.recorder import TENSOR_TYPE
from fineline.kinds import is_a
from fineline.torch_facts.names import TENSOR_TYPES
from fineline.tracing.interp import Call, Handler


def _make(call: Call) -> Frame | None:
    args = call.args
    if not call.trace.active:
        return call.run_natively()
    # A torch function mode must see the real call.
    make: Any = None
    given = args
    if not call.kwargs and not torch._C._len_torch_function_stack() and not call.interp.nested.modes:
        one = type(args[0]) if len(args) == 1 else None
        if one in (list, tuple) and not _tensors(args[0]):
            make = torch.tensor
        elif one is torch.Size:
            make = torch.empty
        elif all([type(n) is int and n >= 0 for n in args]):
            make, given = torch.empty, [tuple(args) or (0,)]
    if make is not None:
        return call.instead(make, given, {"dtype": call.fn.dtype, "device": torch.device("cpu")})
    raise call.graph_break("FL410", f"{call.fn.__name__} of what is neither a list nor sizes")


def _tensors(a: Any) -> bool:
    """Returns whether ``a`` is a tensor or contains one, at any depth: the old type would read its numbers."""
    return is_a(a, torch.Tensor) or (type(a) in (list, tuple) and any(map(_tensors, a)))


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    dict.fromkeys([cls for name in TENSOR_TYPES.split() if type(cls := getattr(torch, name)) is TENSOR_TYPE], _make)
)
