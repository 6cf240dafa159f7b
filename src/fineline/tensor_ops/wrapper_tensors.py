"""Tensors of wrapper subclasses that the captured code makes: its constructor is run through, and a graph puts the tensor together from its parts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from fineline.frames.frame import Frame
from fineline.kinds import is_a, is_wrapper_class
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.torch_facts.callables import classify_torch
from fineline.tracing.interp import Call, Handler
from fineline.tracing.segment_trace import SegmentTrace

# Arguments of `_make_wrapper_subclass` that change neither the layout nor what the class is asked about the tensor.
_PLAIN = frozenset(["strides", "storage_offset", "memory_format", "dtype", "layout", "device", "pin_memory", "requires_grad", "size"])


def _make(call: Call) -> Frame | None:
    """Makes the tensor for real: it has no memory of its own, and gets its inner tensors as attributes, from code that is captured."""
    if not call.trace.active or call.interp.nested.opaque is not None:
        return call.interp.tensors.call(call, classify_torch(call.fn))
    cls, kwargs = call.args[0] if call.args else None, call.kwargs or {}
    if not is_a(cls, type) or not is_wrapper_class(cls) or cls in call.trace.classes.local or call.interp.nested.subgraph_rules is not None:
        raise call.graph_break("FL421", "making a tensor of a class that does not say how to take it apart")
    if len(call.args) > 2 or not all([name in _PLAIN or not kwargs[name] for name in kwargs]) or kwargs.get("layout", torch.strided) is not torch.strided:
        raise call.graph_break("FL421", f"making a {cls.__name__} that answers for its sizes itself, or is not dense")
    args = [cls, *[_constant(call.trace, a) for a in call.args[1:]]]
    kwargs = {name: _constant(call.trace, a) for name, a in kwargs.items()}
    made = call.fn(*args, **kwargs)
    call.trace.made.add(made)
    call.trace.containers.wrappers.note_making(made, args, kwargs)
    return call.finish(made)


def _constant(trace: SegmentTrace, a: Any) -> Any:
    """Returns an argument as the program repeats it: numbers are guarded, or symbols."""
    if type(a) is list:
        trace.expand(a)
    if type(a) in (tuple, list, torch.Size):
        return tuple([_constant(trace, x) for x in a])
    if type(a) not in SYMBOLIC and trace.deferred.numbers:
        trace.deferred.settle(a)
    return a


HANDLERS: Mapping[Any, Handler] = MappingProxyType({Tensor._make_wrapper_subclass: _make})
