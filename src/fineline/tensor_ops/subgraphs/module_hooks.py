"""Hooks on modules that the captured code registers and removes again.

A handle takes its number from a count of the whole process, so that each call has other ones. The numbers are no constants of the program: it
only counts the handles, and a hook that is still registered where the graph ends is registered outside of it.
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

_DICTS = (dict, list, type(None))


def count_handle() -> None:
    """Counts a handle that a graph has made and removed."""
    RemovableHandle.next_id += 1


def _make(call: Call) -> Frame | None:
    """Handles the constructor of a handle. Its number is read without a guard."""
    trace, nested, args = call.trace, call.interp.nested, [*call.args, *(call.kwargs or {}).values()]
    new = trace.active and nested.opaque is None and nested.subgraph_rules is None and len(args) in (2, 3) and args[0] in trace.made
    if not new or not is_a(args[1], dict) or not is_a(args[-1], _DICTS):
        return call.interpret() if trace.active else call.run_natively()
    extra = args[2] if len(args) == 3 else None
    dicts = (args[1], *(extra if is_a(extra, list) else () if extra is None else (extra,)))
    trace.mutations.hooks.add_to_module(ModuleHook(args[0], dicts, _called_at(call)))
    call.native()
    trace.pin(count_handle, "count_handle")
    trace.mutations.note_call(count_handle, [], {})
    return call.finish(None)


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
