"""The ``requires_grad`` flag of tensors: when setting it starts no autograd history, and when it cannot be set."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.recorder import Recorder
from fineline.guards.source import Source
from fineline.tracing.interp import Interp


def dormant(interp: Interp, fn: Any, args: Any) -> bool:
    """Returns whether ``fn`` makes a leaf that starts no history: gradients are off since the graph's start, and this keeps them off to its end."""
    trace = interp.trace
    if trace.state.start.grad_mode or torch.is_grad_enabled() or torch.is_inference_mode_enabled() or type(trace.recorder) is not Recorder:
        return False
    fits = fn is Tensor.requires_grad_ and interp.tensors.symbolic and trace.recorder.known(args[0]) and not args[0]._is_view()
    trace.recorder.traits.leaves = trace.recorder.traits.leaves or fits
    return fits


def set_requires_grad(interp: Interp, t: Tensor, src: Source | None, value: bool) -> None:
    """Handles ``t.requires_grad = value``. Unlike ``requires_grad_``, the assignment raises for every computed tensor, whatever the value."""
    trace = interp.trace
    if src is not None and t.requires_grad:
        # No other guard covers whether the tensor has a history.
        trace.load(t.is_leaf, trace.guards.access(src, "member", torch._C.TensorBase.is_leaf, t.is_leaf))
    if not t.is_leaf or (src is None and not (t.is_floating_point() or t.is_complex())):
        t.requires_grad = value
    try:
        interp.tensors.operator(interp, Tensor.requires_grad_, [t, value], None, True)
    except GraphBreak as b:
        raise GraphBreak(setattr, (t, "requires_grad", value), None, b.error, b.reason).discard() from None
