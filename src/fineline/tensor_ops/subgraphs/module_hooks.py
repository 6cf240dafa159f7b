"""Hooks on modules that the captured code registers.

A handle takes its number from a count of the whole process, so that each call has other numbers. No guard covers a number that PyTorch's code puts
into the dicts of a module: the user's code must not see it, by the handle or by a dict. A program registers the hooks that are left where it ends,
and only counts the handles of the others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import CodeType, MappingProxyType
from typing import Any

from torch.utils.hooks import RemovableHandle

from fineline.frames.frame import Frame
from fineline.frames.stub_frames import is_of_modules
from fineline.kinds import is_a
from fineline.tracing.interp import Call, Handler
from fineline.tracing.mutation_log import ModuleHook


def _make(call: Call) -> Frame | None:
    """Handles the constructor of a handle."""
    trace, args = call.trace, [*call.args, *(call.kwargs or {}).values()]
    if not trace.active:
        return call.run_natively()
    if not _is_hidden(call) or len(args) not in (2, 3) or type(args[0]) is not RemovableHandle or args[0] not in trace.made:
        return call.interpret()
    extra = args[2] if len(args) == 3 else None
    dicts = (args[1], *(extra if is_a(extra, list) else () if extra is None else (extra,)))
    if not all([type(d) is OrderedDict for d in dicts]) or trace.mutations.hooks.are_shown(dicts):
        return call.interpret()
    trace.mutations.hooks.add_to_module(ModuleHook(args[0], dicts, _called_at(call)))
    call.native()
    return call.finish(None)


def _is_hidden(call: Call) -> bool:
    """Returns whether a module makes the handle, and the graph itself holds what follows."""
    nested = call.interp.nested
    return nested.opaque is None and nested.subgraph_rules is None and is_of_modules(call.frame.info.code)


def _called_at(call: Call) -> tuple[CodeType, int] | None:
    """Returns where the user's code registers the hook."""
    f: Frame | None = call.frame
    while f is not None and is_of_modules(f.info.code):
        f = f.back
    return (f.info.code, f.ip - 1) if f is not None else None


HANDLERS: Mapping[Any, Handler] = MappingProxyType({RemovableHandle.__init__: _make})
