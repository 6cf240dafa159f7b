"""Calls of PyTorch's old tensor types, such as `torch.LongTensor`: the functions that make the same take their place in a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import TENSOR_TYPE
from fineline.kinds import is_a
from fineline.torch_facts.names import TENSOR_TYPES
from fineline.tracing.interp import Interp


def _make(interp: Interp, f: Frame, cls: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not interp.trace.active:
        return interp.finish(f, interp.native(cls, tuple(args), kwargs), then, data)
    # A mode of the user's is told what is really called.
    make: Any = None
    given = args
    if not kwargs and not torch._C._len_torch_function_stack():
        one = type(args[0]) if len(args) == 1 else None
        if one in (list, tuple) and not _tensors(args[0]):
            make = torch.tensor
        elif one is torch.Size:
            make = torch.empty
        elif all([type(n) is int and n >= 0 for n in args]):
            make, given = torch.empty, [tuple(args) or (0,)]
    if make is not None:
        made: Frame | None = interp.call(f, make, given, {"dtype": cls.dtype, "device": torch.device("cpu")}, then, data)
        return made
    raise GraphBreak(cls, tuple(args), kwargs, "FL410", f"{cls.__name__} of what is neither a list nor sizes").to(then, data)


def _tensors(a: Any) -> bool:
    """Returns whether there are tensors in ``a``, whose numbers are read."""
    return is_a(a, torch.Tensor) or (type(a) in (list, tuple) and any(map(_tensors, a)))


HANDLERS: Mapping[Any, Callable] = MappingProxyType(
    dict.fromkeys([cls for name in TENSOR_TYPES.split() if type(cls := getattr(torch, name)) is TENSOR_TYPE], _make)
)
