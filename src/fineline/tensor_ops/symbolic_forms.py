"""Replacements for operators that would ask a symbolic number, or a tensor of one number, for its value."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.frames.graph_breaks import GraphBreak, Restart
from fineline.kinds import is_a
from fineline.symbolic.arithmetic import SIZES, holds, only_numbers
from fineline.tensor_ops import unbacked
from fineline.tensor_ops.rules import operator_rule
from fineline.tracing.interp import Interp
from fineline.tracing.segment_trace import SegmentTrace

# The C code of functions that make a tensor of numbers asks for the value of each number.
_OF_NUMBERS: Mapping[Any, Callable] = MappingProxyType({torch.tensor: torch._refs.tensor, torch.as_tensor: torch._refs.tensor})
_WHOLE = slice(None)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


def form_of(trace: SegmentTrace, fn: Any, args: Any, kwargs: dict | None) -> tuple[Any, Any, dict | None]:
    """Returns an operator and its arguments, or an equivalent operator that accepts the symbolic numbers among them."""
    form = _OF_NUMBERS.get(fn)
    if form is not None or fn is Tensor.new_tensor:
        if kwargs and "data" in kwargs:
            args, kwargs = [*args, kwargs["data"]], {k: v for k, v in kwargs.items() if k != "data"}
        # A list contains symbols only after its items have been read.
        for a in args:
            _read(trace, a)
    if fn is Tensor.new_tensor and holds(args[1:]) and only_numbers(args[1:]):
        return torch._refs.tensor, args[1:], {"dtype": args[0].dtype, "device": args[0].device, **(kwargs or {})}
    return form if form is not None and holds(args) and only_numbers(args) else fn, args, kwargs


def _read(trace: SegmentTrace, a: Any) -> None:
    if type(a) in SIZES:
        trace.expand(a)
        for x in a:
            _read(trace, x)


def picks(k: Any) -> bool:
    """Returns whether ``k``, a part of an index, is an integer tensor that stands for its one number: then the result is a view."""
    return is_a(k, Tensor) and k.dim() == 0 and k.dtype in _INTEGERS


def item_of(interp: Interp, t: Tensor, key: Any, used: bool = False) -> Tensor | None:
    """Returns ``t[key]`` for a key with a symbolic number; None if the key has no symbolic number, or contains advanced indices."""
    whole, items = t, key if type(key) is tuple else (key,)
    if interp.backing.switches and any(map(picks, items)):
        # Compilers that trace the graph cannot read the number.
        raise Restart("FL508", "a tensor of one number as an index")
    if interp.nested.index_modes or interp.tensors.indices:
        return None
    # In a transform of torch.func, the tensor has one number for each row.
    outside = not torch._C._functorch.get_dynamic_layer_stack_depth()
    if not interp.backing.may_be_symbolic:
        interp.trace.recorder.traits.reads_numbers |= outside and any(map(picks, items))
        return None
    readable = interp.trace.symbols is not None and interp.tensors.symbolic and interp.nested.opaque is None and outside
    numbers = [type(k) is torch.SymInt or (readable and picks(k)) for k in items]
    taken = sum([number or type(k) in (int, slice) for k, number in zip(items, numbers, strict=True)])
    if not any(numbers) or taken > t.dim():
        return None
    rule = operator_rule(interp, Tensor.select, [t, 0, 0], None) if interp.rules is not None else None
    if rule is not None and rule.verb not in ("trace", "allow"):
        # A rule about ``select`` must not apply, because the user's code does not call it.
        return None
    if not all([number or k is Ellipsis or k is None or type(k) in (int, slice) for k, number in zip(items, numbers, strict=True)]):
        return None
    rest, at, chosen = [], 0, []
    for k, number in zip(items, numbers, strict=True):
        if k is Ellipsis:
            at += t.dim() - taken
        elif number:
            chosen.append((at, unbacked.item(interp, k) if is_a(k, Tensor) else k))
            k = _WHOLE
            at += 1
        elif k is None or type(k) is slice:
            at += 1
        rest.append(k)
    if any([k is not _WHOLE for k in rest]):
        t = interp.tensors.operator(interp, operator.getitem, [t, tuple(rest)], None, True)
    # In reverse order, because each select removes a dimension.
    try:
        for at, k in reversed(chosen):
            t = interp.tensors.operator(interp, Tensor.select, [t, at, k], None, used or at is not chosen[0][0])
    except GraphBreak as b:
        raise b.calls(operator.getitem, (whole, key), None) from None
    return t
