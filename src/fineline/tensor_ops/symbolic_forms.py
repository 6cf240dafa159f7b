"""Operators that would ask a symbolic number, or a tensor of one, for its value, written with others that do not."""

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

# What makes a tensor of numbers asks for each in C.
_OF_NUMBERS: Mapping[Any, Callable] = MappingProxyType({torch.tensor: torch._refs.tensor, torch.as_tensor: torch._refs.tensor})
_WHOLE = slice(None)
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


def form_of(trace: SegmentTrace, fn: Any, args: Any, kwargs: dict | None) -> tuple[Any, Any, dict | None]:
    """Returns an operator and its arguments, or what does the same with numbers some of which are symbolic."""
    form = _OF_NUMBERS.get(fn)
    if form is not None or fn is Tensor.new_tensor:
        if kwargs and "data" in kwargs:
            args, kwargs = [*args, kwargs["data"]], {k: v for k, v in kwargs.items() if k != "data"}
        # A list given as a whole has no symbols in it before it is read.
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
    """Returns whether ``k``, a tensor in an index, stands for the one number in it: what comes out is a view."""
    return is_a(k, Tensor) and k.dim() == 0 and k.dtype in _INTEGERS


def item_of(interp: Interp, t: Tensor, key: Any, used: bool = False) -> Tensor | None:
    """Returns ``t[key]`` for a key with a symbolic number; None if there is none, or if there are other than basic indices."""
    whole, items = t, key if type(key) is tuple else (key,)
    if interp.backing.switches and any(map(picks, items)):
        # Compilers that trace the graph can't read it.
        raise Restart("FL508", "a tensor of one number as an index")
    if not interp.backing.may_be_symbolic or interp.nested.index_modes or interp.tensors.indices:
        return None
    # Not in a transform of torch.func, where there is one for each row.
    outside = not torch._C._functorch.get_dynamic_layer_stack_depth()
    readable = interp.trace.symbols is not None and interp.tensors.symbolic and interp.nested.opaque is None and outside
    numbers = [type(k) is torch.SymInt or (readable and picks(k)) for k in items]
    taken = sum([number or type(k) in (int, slice) for k, number in zip(items, numbers, strict=True)])
    if not any(numbers) or taken > t.dim():
        return None
    rule = operator_rule(interp, Tensor.select, [t, 0, 0], None) if interp.rules is not None else None
    if rule is not None and rule.verb not in ("trace", "allow"):
        # It is not what the user's code calls.
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
    # From the last on: each takes a dimension away.
    try:
        for at, k in reversed(chosen):
            t = interp.tensors.operator(interp, Tensor.select, [t, at, k], None, used or at is not chosen[0][0])
    except GraphBreak as b:
        raise b.calls(operator.getitem, (whole, key), None) from None
    return t
