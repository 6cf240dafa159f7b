"""The code of DistributedDataParallel around the module that it wraps: it runs eagerly as a whole, and the module's code is captured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from fineline.frames.frame import Frame
from fineline.tracing.interp import Call, Handler

_RUN, _INSIDE = DistributedDataParallel._run_ddp_forward, DistributedDataParallel._inside_ddp_forward


def _enter(module: Any) -> Any:
    """Makes ``module`` the active one; returns the one before."""
    before = DistributedDataParallel._active_ddp_module
    DistributedDataParallel._active_ddp_module = module
    return before


def _leave(before: Any) -> None:
    DistributedDataParallel._active_ddp_module = before


def _run_module(self: Any, *inputs: Any, **kwargs: Any) -> Any:
    """Runs the wrapped module while ``self`` is the active one, without the generator that PyTorch's context manager needs."""
    before = _enter(self)
    try:
        return self.module(*inputs, **kwargs)
    finally:
        _leave(before)


def _prepares(call: Call) -> Frame | None:
    """Runs a function as code that is not compiled, where it sets up what compiled code would leave out."""
    return call.run_eagerly("FL411", f"{call.fn.__qualname__} prepares the exchange of gradients or buffers between processes")


def _switches(call: Call) -> Frame | None:
    return call.run_eagerly("FL411", "a DistributedDataParallel begins or ends to be the active one")


def _runs(call: Call) -> Frame | None:
    module = call.args[0] if call.args else None
    plain = type(module) is DistributedDataParallel and not module.__dict__.get("_use_python_reducer") and "_inside_ddp_forward" not in module.__dict__
    if not call.trace.active or not plain or DistributedDataParallel._inside_ddp_forward is not _INSIDE:
        return call.interpret()
    call.trace.pin(_run_module, "run_module")
    return call.instead(_run_module, call.args, call.kwargs)


AROUND: Mapping[Any, Handler] = MappingProxyType(
    {DistributedDataParallel._pre_forward: _prepares, DistributedDataParallel._post_forward: _prepares, _RUN: _runs}
)
"""Handlers of functions that a trace rule overrides."""
HANDLERS: Mapping[Any, Handler] = MappingProxyType({_enter: _switches, _leave: _switches})
