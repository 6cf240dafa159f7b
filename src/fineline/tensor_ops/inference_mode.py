"""``torch.inference_mode`` as a pair of graph nodes: the context that entering makes goes to the node that leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.autograd.grad_mode import _enter_inference_mode, _exit_inference_mode

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.fx.output_fixups import OUTSIDE
from fineline.objects.attribute_reads import load_attr
from fineline.objects.attribute_writes import generic_store

CONTEXT = "_inference_mode_context"
REASON = "an inference mode around a graph break"


def _enter(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not vm.cap.active:
        return vm.push_function(f, fn, args, kwargs, then, data)
    return load_attr(vm, f, args[0], "mode", _entered, (args[0], then, data))


def _entered(vm: Any, f: Frame, mode: Any, state: tuple) -> Frame | None:
    if vm.options.inference_borders or vm.options.force_borders:
        raise GraphBreak(_enter_inference_mode, (mode,), None, "FL501", REASON).to(_keep, state)
    recorder, grad_mode = vm.cap.recorder, torch.is_grad_enabled()
    # Entered and noted in one call into C: an exception from outside between the two would leave the mode on.
    vm.inference_modes.extend(map(torch._C._InferenceMode, (mode,)))
    context = vm.cap.fresh(vm.inference_modes[-1])
    context.__enter__()
    recorder.record("call_function", _enter_inference_mode, (mode,), {}, context)
    recorder.find(context).meta[OUTSIDE] = grad_mode
    return _keep(vm, f, context, state)


def _keep(vm: Any, f: Frame, context: Any, state: tuple) -> Frame | None:
    obj, then, data = state
    generic_store(vm, f, obj, CONTEXT, context)
    return vm.finish(f, None, then, data)


def _exit(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if not vm.cap.active:
        return vm.push_function(f, fn, args, kwargs, then, data)
    return load_attr(vm, f, args[0], CONTEXT, _leave, (then, data))


def _leave(vm: Any, f: Frame, context: Any, state: tuple) -> Frame | None:
    node = vm.cap.recorder.find(context)
    if node is None:
        raise GraphBreak(_exit_inference_mode, (context,), None, "FL501", REASON).to(*state)
    _exit_inference_mode(context)
    vm.inference_modes.remove(context)
    vm.cap.recorder.record("call_function", _exit_inference_mode, (node,), {}, None)
    return vm.finish(f, None, *state)


SPECIALS: Mapping[Any, Callable] = MappingProxyType(
    {torch.inference_mode.__enter__: _enter, torch.inference_mode.__exit__: _exit},
)
