"""The user's dispatch and function modes, which see each operator that runs: while one is active, nothing is captured."""

from __future__ import annotations

from collections.abc import Mapping
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
from fineline.tracing.interp import Call, Handler


def watching() -> str | None:
    """Returns a text about an active mode of the user that sees operators; None if only fineline's modes, fake modes and devices are active."""
    c = torch._C
    modes = [c._get_dispatch_stack_at(i) for i in range(c._len_torch_dispatch_stack())]
    # The tensors of the user's fake mode are the real tensors of a capture.
    if any([not is_a(m, (FakeTensorMode, Tally)) for m in modes]):
        return "a TorchDispatchMode is active"
    if any([not is_a(m, DeviceContext) for m in _get_current_function_mode_stack()]):
        return "a TorchFunctionMode is active"
    return None


def left(call: Call, mode: Any) -> Frame | None:
    """Delivers a user mode that has ended; the capture continues after the outermost one."""
    if call.interp.eager.resumes and not call.trace.active and None not in SCOPE.blocks and watching() is None:
        raise GraphBreak(_given, (mode,), None, "FL430", "a block under a mode ends")
    return call.finish(mode)


def _given(mode: Any) -> Any:
    return mode


def _pop(call: Call) -> Frame | None:
    if not call.trace.active:
        return left(call, call.native())
    raise call.graph_break("FL503", f"{call.fn.__name__} has effects that no graph can hold")


HANDLERS: Mapping[Any, Handler] = MappingProxyType({torch._C._pop_torch_dispatch_stack: _pop})
