"""``torch.inference_mode`` as a pair of graph nodes: the node that leaves the mode takes the context that the entering node returns."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery, GraphBreak
from fineline.fx.output_fixups import OUTSIDE
from fineline.objects.attribute_reads import load_attr
from fineline.objects.attribute_writes import generic_store
from fineline.tracing.interp import Call, Handler, Interp

CONTEXT = "_inference_mode_context"
REASON = "an inference mode around a graph break"


def _enter(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.interpret()
    return Delivery(_entered, call.then, call.args[0]).of(load_attr, call.interp, call.frame, call.args[0], "mode")


def _entered(interp: Interp, f: Frame, mode: Any, then: Delivery | None, obj: Any) -> Frame | None:
    if interp.lessons.graphs.inference_mode_breaks or interp.options.force_graph_breaks:
        raise GraphBreak(_enter_inference_mode, (mode,), None, "FL501", REASON).to(Delivery(_keep, then, obj))
    recorder, grad_mode = interp.trace.recorder, torch.is_grad_enabled()
    # Enters and notes the mode in one call into C: an asynchronous exception between the two would leave the mode on.
    interp.nested.inference_modes.extend(map(torch._C._InferenceMode, (mode,)))
    context = interp.trace.fresh(interp.nested.inference_modes[-1])
    context.__enter__()
    recorder.record("call_function", _enter_inference_mode, (mode,), {}, context)
    entered = recorder.find(context)
    assert entered is not None
    entered.meta[OUTSIDE] = grad_mode
    return _keep(interp, f, context, then, obj)


def _keep(interp: Interp, f: Frame, context: Any, then: Delivery | None, obj: Any) -> Frame | None:
    generic_store(interp, f, obj, CONTEXT, context)
    return interp.finish(f, None, then)


def _exit(call: Call) -> Frame | None:
    if not call.trace.active:
        return call.interpret()
    return Delivery(_leave, call.then).of(load_attr, call.interp, call.frame, call.args[0], CONTEXT)


def _leave(interp: Interp, f: Frame, context: Any, then: Delivery | None) -> Frame | None:
    node = interp.trace.recorder.find(context)
    if node is None:
        raise GraphBreak(_exit_inference_mode, (context,), None, "FL501", REASON)
    _exit_inference_mode(context)
    interp.nested.inference_modes.remove(context)
    interp.trace.recorder.record("call_function", _exit_inference_mode, (node,), {}, None)
    return interp.finish(f, None, then)


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {torch.inference_mode.__enter__: _enter, torch.inference_mode.__exit__: _exit},
)
