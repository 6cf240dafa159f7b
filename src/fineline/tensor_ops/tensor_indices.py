"""Tensors of one number as indices, in code under PyTorch's mode for ``mask_mod`` and ``score_mod``."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.frames.frame import Frame
from fineline.kinds import is_a
from fineline.tensor_ops.torch_functions import enter_mode, leave_mode
from fineline.tensor_ops.user_modes import enter, leave, left
from fineline.tracing.interp import Call, Handler

# The mode's module and name, because fineline does not import its module, which belongs to TorchDynamo.
_MODE = ("torch._dynamo._trace_wrapped_higher_order_op", "TransformGetItemToIndex")
_INTEGERS = (torch.int64, torch.int32)


def numbers_in_tensors(fn: Any, args: Any) -> list[Tensor] | None:
    """Returns the indices for ``aten.index`` that replace ``args[1]``; None if ``fn`` is not a subscript, or no integer tensor is in the index."""
    if fn is not operator.getitem and fn is not Tensor.__getitem__:
        return None
    places = args[1] if type(args[1]) is tuple else (args[1],)
    if not all([type(k) is int or (is_a(k, Tensor) and k.dtype in _INTEGERS) for k in places]):
        return None
    return [torch.tensor(k) if type(k) is int else k for k in places] if any([is_a(k, Tensor) for k in places]) else None


def _push(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.run_natively()
    if (type(call.args[0]).__module__, type(call.args[0]).__qualname__) != _MODE or call.interp.nested.opaque is not None:
        return enter(call)
    call.interp.nested.index_modes.append(call.args[0])
    return call.finish(None)


def _pop(call: Call) -> Frame | None:
    if call.interp.nested.index_modes:
        return call.finish(call.interp.nested.index_modes.pop())
    if not call.trace.active:
        return left(call, call.native())
    return leave(call)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {torch._C._push_on_torch_function_stack: _push, torch._C._pop_torch_function_stack: _pop, enter_mode: _push, leave_mode: _pop}
)
