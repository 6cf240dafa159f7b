"""Modes of the user's, which see each operator that runs: while one is active nothing is captured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.policy.scope_stack import SCOPE
from fineline.report.operator_counter import Tally
from fineline.tracing.interp import Interp


def watching() -> str | None:
    """Returns what is active, if something sees the operators besides fineline's own count of them."""
    c = torch._C
    modes = [c._get_dispatch_stack_at(i) for i in range(c._len_torch_dispatch_stack())]
    # The tensors of a fake mode of the user's are the real ones of a capture.
    if any([not is_a(m, (FakeTensorMode, Tally)) for m in modes]):
        return "a TorchDispatchMode is active"
    if any([not is_a(m, DeviceContext) for m in _get_current_function_mode_stack()]):
        return "a TorchFunctionMode is active"
    return None


def left(interp: Interp, f: Frame, mode: Any, then: Any, data: Any) -> Frame | None:
    """Continues the capture after the end of the outermost user mode."""
    if interp.resumes and not interp.trace.active and None not in SCOPE.blocks and watching() is None:
        raise GraphBreak(_given, (mode,), None, "FL430", "a block under a mode ends").to(then, data)
    return interp.finish(f, mode, then, data)


def _given(mode: Any) -> Any:
    return mode


def _pop(interp: Interp, f: Frame, fn: Any, args: list, kwargs: dict | None, then: Any, data: Any) -> Frame | None:
    if not interp.trace.active:
        return left(interp, f, interp.native(fn, tuple(args), kwargs), then, data)
    raise GraphBreak(fn, tuple(args), kwargs, "FL503", f"{fn.__name__} has effects that no graph can hold").to(then, data)


HANDLERS: Mapping[Any, Callable] = MappingProxyType({torch._C._pop_torch_dispatch_stack: _pop})
