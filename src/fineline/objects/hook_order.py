"""Guards on the hooks of modules from before the segment: on their order instead of on the numbers of their handles.

A handle takes its number from a count of the whole process: code that registers a hook before each call and removes it after the call finds
another number each time. PyTorch's own code of modules asks only which hooks are the same in the dicts of one module. So these dicts are
guarded by the ranks of the numbers in them (`SegmentTrace.is_ordered`), after the numbers have varied. Other code that reads them guards the
numbers themselves.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import islice
from types import MappingProxyType
from typing import Any

from torch.nn.modules import module
from torch.utils.hooks import RemovableHandle

from fineline.frames.frame import Frame, stack
from fineline.frames.stub_frames import is_of_modules
from fineline.guards.source import Source
from fineline.tracing.interp import Interp
from fineline.tracing.lessons import Hooks
from fineline.tracing.segment_trace import SegmentTrace

# The dicts in which `nn.Module.__call__` finds hooks, and what it knows of these.
OF_CALLS = (
    *("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs"),
    *("_backward_hooks", "_backward_pre_hooks"),
)
_OF_ALL_MODULES = tuple([hooks for name, hooks in vars(module).items() if name.startswith("_global_") and type(hooks) is OrderedDict])
TUPLE_ITERATOR = type(iter(()))


class Ranks:
    """Reads the numbers in a module's dicts of hooks as a member of its ``__dict__``, each number as its rank among them."""

    __name__ = "hooks"
    MEMBER_TEXTS = MappingProxyType({"": "the order of the hooks in {of}"})

    def __get__(self, space: dict[str, Any], cls: type | None = None) -> Hooks:
        return ranks([space[name] for name in OF_CALLS])


class HookAt:
    """Reads the hook at a place of a dict as a member."""

    MEMBER_TEXTS = MappingProxyType({"": "hook {at} of {of}"})

    def __init__(self, at: int) -> None:
        self.at = at
        self.__name__ = f"hook_{at}"

    def __get__(self, hooks: OrderedDict[int, Any], cls: type | None = None) -> Any:
        return next(islice(OrderedDict.values(hooks), self.at, None))


class HoldersOf:
    """Reads the dicts that hold the hook of a handle as a member."""

    __name__ = "dicts"
    MEMBER_TEXTS = MappingProxyType({"": "the dicts of {of}"})

    def __get__(self, handle: RemovableHandle, cls: type | None = None) -> tuple[Any, ...]:
        return tuple([ref() for ref in (handle.hooks_dict_ref, *handle.extra_dict_ref)])


class PlacesOf:
    """Reads the places of a handle's number in the dicts that hold its hook as a member; -1 where a dict has no such number."""

    __name__ = "places"
    MEMBER_TEXTS = MappingProxyType({"": "the places of {of} in its dicts"})

    def __get__(self, handle: RemovableHandle, cls: type | None = None) -> tuple[int, ...]:
        return places(handle.id, HOLDERS_OF.__get__(handle))


RANKS, HOLDERS_OF, PLACES_OF = Ranks(), HoldersOf(), PlacesOf()


def ranks(dicts: Iterable[Iterable[int]]) -> Hooks:
    """Returns the numbers in each of the dicts, as their ranks in the order in which they are found."""
    found = dict[int, int]()
    return tuple([tuple([found.setdefault(number, len(found)) for number in hooks]) for hooks in dicts])


def places(number: int, dicts: Iterable[Iterable[int]]) -> tuple[int, ...]:
    """Returns the place of the number in each of the dicts, or -1."""
    return tuple([[*hooks, number].index(number) if number in hooks else -1 for hooks in dicts])


def guard_order(interp: Interp, space: dict[str, Any], src: Source, hooks: OrderedDict[int, Any]) -> None:
    """Guards the order of a module's hooks, one dict of which its own code is about to read. ``space``: the module's ``__dict__``."""
    trace, dicts = interp.trace, [space.get(name) for name in OF_CALLS]
    written = space in trace.mutations.written and any([trace.mutations.is_dirty(space, name) for name in OF_CALLS])
    if written or any(_OF_ALL_MODULES) or not _is_alone(interp) or not any([hooks is d for d in dicts]) or not _are_plain(trace, dicts):
        # Their numbers are guarded.
        trace.containers.ordered.discard(hooks)
        return
    numbers = tuple([tuple(trace.mutations.before(d)) for d in dicts])
    found, made = ranks(numbers), any([number >= interp.varying.first_handle for held in numbers for number in held])
    if not interp.lessons.hooks.ask(src.text(), numbers, found) and not made and hooks not in trace.containers.ordered:
        # C checks the numbers, and Python the order.
        return
    trace.guards.check(trace.guards.access(src, "member", RANKS, found), "eq", found)
    if hooks not in trace.containers.ordered:
        trace.containers.ordered.add(hooks)
        for at, hook in enumerate(trace.mutations.before(hooks).values()):
            trace.load(hook, trace.guards.access(trace.sources[hooks], "member", HookAt(at), hook))


def _is_alone(interp: Interp) -> bool:
    """Returns whether the graph itself holds what follows, no sub-graph or opaque call, and no user's code runs beside the capture."""
    return interp.nested.opaque is None and interp.nested.subgraph_rules is None and interp.trace.namespaces.shadows is None


def _are_plain(trace: SegmentTrace, dicts: Iterable[Any]) -> bool:
    return all([type(hooks) is OrderedDict and all([type(number) is int for number in trace.mutations.before(hooks)]) for hooks in dicts])


def remove_existing(interp: Interp, handle: object, src: Source) -> bool:
    """Removes the hook of a handle from before the segment; returns False if this is no handle of a hook on the call of a module."""
    if type(handle) is not RemovableHandle or not _is_alone(interp):
        return False
    trace, fields = interp.trace, handle.__dict__
    if fields in trace.mutations.written or not fields["extra_dict_ref"]:
        return False
    number, dicts, guards = fields["id"], HOLDERS_OF.__get__(handle), trace.guards
    if type(number) is not int or not _are_plain(trace, dicts):
        return False
    found = places(number, [trace.mutations.before(hooks) for hooks in dicts])
    guards.check(guards.access(src, "member", PLACES_OF, found), "eq", found)
    held = guards.access(src, "member", HOLDERS_OF, dicts)
    for n, hooks in enumerate(dicts):
        trace.load(hooks, guards.access(held, "index", n, hooks))
        trace.mutations.hooks.holders.add(hooks)
    remove_number(trace, number, dicts)
    return True


def remove_number(trace: SegmentTrace, number: int, dicts: Iterable[dict[int, Any]]) -> None:
    """Removes the hook with that number from the dicts."""
    for hooks in dicts:
        if number in hooks:
            if (src := trace.sources.get(hooks)) is not None:
                trace.mutations.note(hooks, src, number)
            del hooks[number]


def settle_numbers(trace: SegmentTrace, frame: Frame | None) -> None:
    """Guards the numbers of hooks that PyTorch's own code, amid the hooks of a module, holds at a graph break: they are constants after it.

    Raises `NotReconstructible` if one is the number of a hook that the segment has registered.
    """
    made = [hook for hook in trace.mutations.hooks.of_modules.values() if hook.lasts]
    if not made and not len(trace.containers.ordered):
        return
    held = {number for f in stack(frame) if is_of_modules(f.info.code) for number in _numbers_of(f)}
    for hook in made:
        if hook.handle.id in held:
            raise hook.outside
    for hooks in trace.containers.ordered:
        if not held.isdisjoint(trace.mutations.before(hooks)):
            trace.guards.check(trace.sources[hooks], "keys", tuple(trace.mutations.before(hooks)))


def _numbers_of(f: Frame) -> Iterator[int]:
    """Yields the numbers in the variables of a frame and on its stack, also those in sets and in the pairs that an iterator will give."""
    live = f.info.live_after(f.ip)
    for v in [*[f.local[i] for i in live], *f.stack]:
        if type(v) is int:
            yield v
        elif type(v) is set:
            yield from [x for x in v if type(x) is int]
        elif type(v) is TUPLE_ITERATOR:
            pairs: Iterable[object] = copy.copy(v)
            yield from [pair[0] for pair in pairs if type(pair) is tuple and type(pair[0]) is int]


# -- what programs do --------------------------------------------------------------------------------------------------
def make_handle(hooks: dict[int, Any], *extra: dict[int, Any]) -> RemovableHandle:
    """Makes the handle of a hook that a graph has registered."""
    return RemovableHandle(hooks, extra_dict=[*extra])


def count_handle() -> None:
    """Counts a handle of which a graph has removed the hook."""
    RemovableHandle.next_id += 1
