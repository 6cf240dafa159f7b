"""The user's modes, which see each operator that runs: the method of a function mode is run through, and nothing is captured in a dispatch mode."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType, MappingProxyType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.objects.type_info import raw_lookup
from fineline.policy.scope_stack import SCOPE
from fineline.report.operator_counter import Tally
from fineline.torch_facts.function_modes import mode_stack, put_on, sees_operators
from fineline.tracing.interp import Call, Handler
from fineline.tracing.subgraph_rules import SubGraphRules

# PyTorch's modules whose modes are for users. The modes of its others belong to its tracers.
_FOR_USERS = ("torch.overrides", "torch.utils._device")


def watching() -> str | None:
    """Returns a text about an active mode that prevents a capture; None if there is none: then code of the user's sees the operators, or no code."""
    c = torch._C
    modes = [c._get_dispatch_stack_at(i) for i in range(c._len_torch_dispatch_stack())]
    # The tensors of the user's fake mode are the real tensors of a capture.
    seeing = [type(m).__name__ for m in modes if not is_a(m, (FakeTensorMode, Tally))]
    if seeing:
        return f"a TorchDispatchMode is on ({seeing[-1]}), whose method has to see each operator that runs"
    on = mode_stack()
    foreign = [type(m).__name__ for m in on if not runs_in_python(m)] if sees_operators(on) else []
    return f"a TorchFunctionMode is on ({foreign[-1]}) whose method is no Python code of the user's" if foreign else None


def runs_in_python(mode: Any) -> bool:
    """Returns whether the method of ``mode`` is Python code that a capture runs through."""
    module = type(mode).__module__
    return type(raw_lookup(type(mode), "__torch_function__")) is FunctionType and (module.partition(".")[0] != "torch" or module in _FOR_USERS)


def left(call: Call, mode: Any) -> Frame | None:
    """Delivers a user mode that has ended; the capture continues after the outermost one."""
    if call.interp.eager.resumes and not call.trace.active and None not in SCOPE.blocks and watching() is None:
        raise GraphBreak(_given, (mode,), None, "FL430", "a block under a mode ends")
    return call.finish(mode)


def enter(call: Call) -> Frame | None:
    """Notes that the captured code enters a function mode: from here on, its method runs in place of each operator."""
    mode, nested = call.args[0], call.interp.nested
    if not runs_in_python(mode) or nested.index_modes or nested.opaque is not None or not _shown(nested.subgraph_rules):
        raise call.graph_break("FL503", f"{call.fn.__name__} has effects that no graph can hold")
    nested.modes.append(mode)
    return call.finish(None)


def _shown(rules: SubGraphRules | None) -> bool:
    """Returns whether the code, which may be that of a sub-graph, is shown to function modes."""
    return rules is None or rules.shown_to_modes


def leave(call: Call) -> Frame | None:
    """Notes that the captured code leaves a function mode that it has entered."""
    if not call.interp.nested.modes:
        raise call.graph_break("FL503", f"{call.fn.__name__} has effects that no graph can hold")
    return call.finish(call.interp.nested.modes.pop())


def _with_modes(call: Call) -> Frame | None:
    """Asks PyTorch for its function modes, among which those are that only the captured code has entered."""
    modes = call.interp.nested.modes
    put_on(modes)
    try:
        return call.run_in_c() if modes else call.interp.tensors.call(call, "query")
    finally:
        for _ in modes:
            torch._C._pop_torch_function_stack()


def _given(mode: Any) -> Any:
    return mode


def _pop(call: Call) -> Frame | None:
    if not call.trace.active:
        return left(call, call.native())
    raise call.graph_break("FL503", f"{call.fn.__name__} has effects that no graph can hold")


def _set_default_device(call: Call) -> Frame | None:
    """Runs through the Python code, which enters a mode. Where another device is set already, only a capture that knows of it takes that off."""
    nested = call.interp.nested
    if not call.trace.active or nested.opaque is not None or nested.subgraph_rules is not None:
        return call.run_eagerly("FL503", f"{call.fn.__name__} has effects that no graph can hold")
    call.interp.lessons.sets_device = True
    if mode_stack():
        raise call.graph_break("FL503", f"{call.fn.__name__} replaces a device; the next capture knows that")
    return call.interpret()


HANDLERS: Mapping[Any, Handler] = MappingProxyType(
    {
        torch.set_default_device: _set_default_device,
        torch._C._pop_torch_dispatch_stack: _pop,
        torch._C._len_torch_function_stack: _with_modes,
        torch._C._get_function_stack_at: _with_modes,
        torch._C._is_torch_function_mode_enabled: _with_modes,
    }
)
