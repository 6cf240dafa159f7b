"""Watches the objects made by the captured code that a sub-graph's code can reach, because no mutation log records writes to them."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor

from fineline.frames.graph_breaks import NotCapturable
from fineline.identity import IdentitySet
from fineline.kinds import is_a
from fineline.tracing.mutation_log import EMPTY, MutationLog, contents
from fineline.tracing.plain_values import is_value
from fineline.tracing.segment_trace import SegmentTrace

_CONTAINERS = (list, dict, set, deque, bytearray, types.CellType)
# Types whose objects are not noted as made by the captured code.
_FLEETING = (types.FunctionType, types.MethodType, tuple, frozenset, functools.partial)
_FIXED = (types.FunctionType, types.MethodType, tuple, frozenset, type, types.ModuleType, Tensor)


def watched(trace: SegmentTrace, roots: list) -> MutationLog:
    """Returns copies of all containers that the captured code has made and that are reachable from ``roots`` or from objects that it has changed."""
    watch = MutationLog()
    roots = [*roots, *[w.obj for w in trace.mutations.written.values()], *[obj for obj, _, _, _ in trace.mutations.slots.values()]]
    seen, todo = IdentitySet((trace,)), deque(roots)
    while todo:
        obj = todo.popleft()
        if obj in seen or is_value(obj) or is_a(obj, (Tensor, type, types.ModuleType)):
            continue
        seen.add(obj)
        made = obj in trace.made
        if made and is_a(obj, _CONTAINERS):
            watch.note(obj, None)  # type: ignore[arg-type]
        elif made and not is_a(obj, _FIXED) and not _frozen(obj):
            space = _space(obj)
            if type(space) is not dict or any([k.__dict__.get("__slots__") for k in type(obj).__mro__]):
                raise NotCapturable(f"it can reach a {type(obj).__name__} that the captured code has made")
            watch.note(space, None)  # type: ignore[arg-type]
        # An object that existed before the call, and has not been changed, contains no object made since.
        if made or obj in trace.mutations.written or (obj not in trace.sources and is_a(obj, _FLEETING)):
            todo.extend(held(obj))
    return watch


def undo_changes(watch: MutationLog) -> bool:
    """Puts back the contents of the watched containers if they have changed; returns whether they have."""
    changed = any([not _unchanged(w.before, w.obj) for w in watch.written.values()])
    if changed:
        watch.undo()
    return changed


def held(obj: Any) -> Iterator[Any]:
    """Yields the objects in ``obj`` that captured code could have put there: items, attributes, and the variables of functions."""
    if is_a(obj, types.FunctionType):
        yield from obj.__closure__ or ()
        yield from obj.__defaults__ or ()
        yield from (obj.__kwdefaults__ or {}).values()
    elif is_a(obj, types.MethodType):
        yield from (obj.__self__, obj.__func__)
    elif is_a(obj, types.CellType):
        if (content := contents(obj)) is not EMPTY:
            yield content
    elif is_a(obj, dict):
        yield from dict.values(obj)
    elif is_a(obj, (tuple, list, set, frozenset, deque)):
        yield from obj
    elif is_a(obj, functools.partial):
        yield from (obj.func, *obj.args, *obj.keywords.values())
    elif _frozen(obj):
        yield from [object.__getattribute__(obj, field.name) for field in dataclasses.fields(obj)]
    elif type(space := _space(obj)) is dict:
        yield from space.values()


def _space(obj: Any) -> Any:
    return object.__getattribute__(obj, "__dict__") if type(obj).__dictoffset__ else None


def _frozen(obj: Any) -> bool:
    return getattr(getattr(type(obj), "__dataclass_params__", None), "frozen", False)


def _unchanged(before: Any, obj: Any) -> bool:
    if is_a(obj, types.CellType):
        return contents(obj) is before
    if is_a(obj, bytearray):
        return bytes(obj) == before
    if len(before) != len(obj):
        return False
    if is_a(obj, dict):
        return all([a is b for a, b in zip(before, obj, strict=True)]) and all([obj[k] is v for k, v in before.items()])
    return all([a is b for a, b in zip(before, obj, strict=True)])
