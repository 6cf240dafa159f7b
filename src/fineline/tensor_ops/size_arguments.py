"""Tensors passed where an operator takes sizes or positions: the number in each is read, and the program specializes on it or makes it a symbol."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.overlap_check import any_foreign
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.tensor_ops import unbacked
from fineline.tracing.identity_guards import Number
from fineline.tracing.interp import Call, Interp
from fineline.tracing.segment_trace import SegmentTrace

INTEGERS = (torch.int64, torch.int32)

# Operators that take sizes or positions: a tensor passed for one of these is read.
SIZE_NAMES = (
    "view", "reshape", "expand", "new_zeros", "new_ones", "new_empty", "new_full", "zeros", "ones", "empty", "full", "arange",
    "range", "linspace", "logspace", "repeat", "narrow", "split", "split_with_sizes", "chunk", "tensor_split", "roll", "unflatten",
    "tile", "broadcast_to", "rand", "randn", "randint", "randperm", "eye", "select", "unfold", "as_strided", "resize_", "triu",
    "tril", "diagonal", "permute", "transpose", "movedim", "flatten", "squeeze", "unsqueeze", "topk", "empty_strided",
    "tril_indices", "triu_indices", "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
)  # fmt: skip
_OWNERS = (torch, Tensor, torch._C.TensorBase)
SIZED = IdentitySet((F.one_hot, *[f for owner in _OWNERS for n in SIZE_NAMES if (f := getattr(owner, n, None)) is not None]))
# Keywords of these operators whose tensors are operands, not sizes: for all of them, and further ones by operator.
WORKED_ON = frozenset({"input", "self", "out"})
NO_SIZES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(("full", "new_full"), WORKED_ON | {"fill_value"}),
        **dict.fromkeys(("linspace", "logspace"), WORKED_ON | {"start", "end"}),
    }
)
# The operators of `SIZE_NAMES` that make tensors, and have no tensor operand.
FACTORY_NAMES = (
    "zeros", "ones", "empty", "full", "arange", "range", "rand", "randn", "randint", "randperm", "eye", "tril_indices", "triu_indices",
    "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window",
)  # fmt: skip
FACTORIES = IdentitySet(getattr(torch, n) for n in FACTORY_NAMES)
SUBSCRIPTS = IdentitySet((operator.getitem, Tensor.__getitem__))


NUMBER = Number(Tensor.item)


def tensor_size(args: Any) -> bool:
    """Returns whether a tensor is among arguments that are sizes, or in lists or tuples among them."""
    return any(is_a(a, Tensor) or (is_a(a, (tuple, list)) and tensor_size(a)) for a in args)


def tensors_for_sizes(fn: Any, args: Any, kwargs: dict | None) -> bool:
    """Returns whether an operator that takes sizes gets a tensor as one of them, not as its operand or as a value."""
    others = args[1:] if _works_on_first(fn, args) else args
    return tensor_size(others) or tensor_size([v for k, v in (kwargs or {}).items() if k not in _values(fn)])


def _works_on_first(fn: Any, args: Any) -> bool:
    return bool(args) and is_a(args[0], Tensor) and fn not in FACTORIES


def _values(fn: Any) -> frozenset[str]:
    return NO_SIZES.get(fn.__name__, WORKED_ON)


def sizes(call: Call) -> tuple[list, dict | None]:
    """Returns the arguments of an operator that takes sizes, with a number for each tensor that is a size; breaks the graph to read one if needed."""
    kwargs, own = call.kwargs, _works_on_first(call.fn, call.args)
    if kwargs and tensors_for_sizes(call.fn, (), kwargs):
        values = _values(call.fn)
        kwargs = {k: v if k in values else _size(call, v) for k, v in kwargs.items()}
    return [a if own and i == 0 else _size(call, a) for i, a in enumerate(call.args)], kwargs


def _size(call: Call, a: Any) -> Any:
    if type(a) in (tuple, list):
        return [_size(call, x) for x in a] if tensor_size(a) else a
    if not is_a(a, Tensor) or a.dim() or a.dtype not in INTEGERS:
        return a
    interp = call.interp
    mutated = interp.trace.recorder.writes.storages
    # A NumPy array's memory may have several storages, so a write may not show in the tensor's own.
    stale = mutated and a in interp.trace.sources
    if not stale and interp.tensors.known.has(a, mutated):
        return interp.tensors.known.numbers(a).item()
    if unbacked.readable(interp, a):
        return unbacked.item(interp, a)
    if not stale and guardable(interp, a):
        return guarded(interp.trace, a)
    sized = Delivery(_sized, call.then, call.fn, tuple(call.args), call.kwargs, a)
    raise GraphBreak(Tensor.item, (a,), None, "FL508", f"a size given to {call.fn.__name__} is a tensor's value").to(sized)


def _sized(interp: Interp, f: Frame, value: int, then: Delivery | None, fn: Any, args: tuple, kwargs: dict | None, t: Tensor) -> Frame | None:
    """Continues after the graph break that has read a size: specializes the next program on ``value``, unless it is a symbol."""
    if type(value) in SYMBOLIC:
        # The symbol replaces the tensor among the arguments.
        values = _values(fn)
        kwargs = kwargs and {k: v if k in values else _with_size(v, t, value) for k, v in kwargs.items()}
        return interp.call(f, fn, _with_size(list(args), t, value), kwargs, then)
    interp.trace.deferred.settle(value)
    interp.tensors.known.add(t, interp.trace.recorder.writes.storages)
    return interp.call(f, fn, list(args), kwargs, then)


def _with_size(a: Any, t: Tensor, value: Any) -> Any:
    if a is t:
        return value
    return type(a)([_with_size(x, t, value) for x in a]) if type(a) in (tuple, list) else a


def subscript(interp: Interp, key: Any) -> Any:
    """Returns an index, with guarded numbers instead of the slice bounds that are tensors and that guards can read."""
    if type(key) is tuple:
        return tuple([subscript(interp, k) for k in key]) if slice in map(type, key) else key
    if type(key) is not slice or not any([guardable(interp, x) for x in (key.start, key.stop, key.step)]):
        return key
    return slice(*[guarded(interp.trace, x) if guardable(interp, x) else x for x in (key.start, key.stop, key.step)])


def guardable(interp: Interp, t: Any) -> bool:
    """Returns whether guards can read the number in ``t``: it exists when the program starts, and the graph has not written it."""
    trace = interp.trace
    if type(t) is not Tensor or interp.nested.opaque is not None or t not in trace.sources or t.dim() or t.dtype not in INTEGERS:
        return False
    # On other devices, guards would wait for the device at each call.
    if t.layout is not torch.strided or t.device.type != "cpu" or torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    # Foreign memory may be shared by another tensor's storage that the graph has written.
    return interp.backing.memory(interp, t).untyped_storage()._cdata not in trace.recorder.writes.storages and not any_foreign((t,))


def guarded(trace: SegmentTrace, t: Tensor) -> Any:
    """Returns the number in ``t`` with a guard on it, or a symbol if the number is known to vary."""
    value = t.item()
    return trace.read(value, trace.guards.access(trace.sources[t], "member", NUMBER, value))
