"""Hooks on modules that the captured code registers and removes again.

A handle takes its number from a count of the whole process, so that each call has other numbers. The program only counts the handles. No guard
covers a number that PyTorch's code puts into the dicts of a module and takes out again: the user's code must not see it, by the handle or by a dict,
and a hook that is still registered where the graph ends is registered outside of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType, MappingProxyType
from typing import Any

from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle

from fineline.frames.frame import Frame
from fineline.kinds import is_a
from fineline.tracing.interp import Call, Handler
from fineline.tracing.mutation_log import ModuleHook


def count_handle() -> None:
    """Counts a handle that a graph has made and removed."""
    RemovableHandle.next_id += 1


def _make(call: Call) -> Frame | None:
    """Handles the constructor of a handle."""
    trace, args = call.trace, [*call.args, *(call.kwargs or {}).values()]
    if not trace.active:
        return call.run_natively()
    if not _is_hidden(call) or len(args) not in (2, 3) or type(args[0]) is not RemovableHandle or args[0] not in trace.made:
        return call.interpret()
    extra = args[2] if len(args) == 3 else None
    dicts = (args[1], *(extra if is_a(extra, list) else () if extra is None else (extra,)))
    if not all([is_a(d, dict) for d in dicts]) or trace.mutations.hooks.are_shown(dicts):
        return call.interpret()
    trace.mutations.hooks.add_to_module(ModuleHook(args[0], dicts, _called_at(call)))
    call.native()
    trace.pin(count_handle, "count_handle")
    trace.mutations.note_call(count_handle, [], {})
    return call.finish(None)


def _is_hidden(call: Call) -> bool:
    """Returns whether a module makes the handle, and the graph itself holds what follows."""
    nested = call.interp.nested
    return nested.opaque is None and nested.subgraph_rules is None and call.frame.info.code.co_filename == module.__file__


def _called_at(call: Call) -> tuple[CodeType, int] | None:
    """Returns where the user's code registers the hook."""
    f: Frame | None = call.frame
    while f is not None and f.info.code.co_filename == module.__file__:
        f = f.back
    return (f.info.code, f.ip - 1) if f is not None else None


def forget_hook(number: int, dicts: tuple[dict[int, Any], ...]) -> None:
    """Removes the hook with that number. Captured."""
    for hooks in dicts:
        if number in hooks:
            del hooks[number]


HANDLERS: Mapping[Any, Handler] = MappingProxyType({RemovableHandle.__init__: _make})
