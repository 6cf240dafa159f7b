"""Writes to objects that existed before the segment: the state before the write, and the parts that were written."""

from __future__ import annotations

import contextlib
import gc
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar, Token
from types import CellType, CodeType, TracebackType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import Node
from torch.utils.hooks import RemovableHandle

from fineline.exception_slots import TRACEBACK
from fineline.frames.graph_breaks import NotReconstructible
from fineline.fx.output_fixups import disowned
from fineline.guards.source import Source
from fineline.identity import AddressMap, IdentityMap, IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.report.events import Event
from fineline.torch_facts.tensor_backup import put_back_memory
from fineline.tracing.subgraph_rules import Timing

EMPTY = object()
TYPE_DICT = type.__dict__["__dict__"]
# The most bytes of tensors that a program copies at each call: this takes a microsecond or two.
MOST_KEPT = 2**16
# How deeply containers and objects are compared with copies of them.
MOST_NESTED = 6
# A write to an object that existed before: the key, or the attribute's name; None: any part of it.
Write = Any
_NUMBERS = (float, int, tuple)
_HOLDERS = (dict, OrderedDict, defaultdict, Counter, list, deque)


def contents(cell: CellType) -> Any:
    """Returns the contents of the cell; EMPTY if it is empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return EMPTY


class Written:
    """One object that was written to. ``before`` is a shallow copy made at the first write."""

    __slots__ = ("before", "keys", "kind", "obj", "src", "whole")

    def __init__(self, obj: Any, src: Source, kind: str, before: Any) -> None:
        self.obj = obj
        self.src = src
        self.kind = kind
        self.before = before
        # A set compares them as a dict does: 1 and True are one key.
        self.keys: set[Any] = set()
        self.whole = False

    def is_renewed(self, key: Any) -> bool:
        """Returns whether the object, or a dict's value at ``key``, holds again what it held before, or a copy of that."""
        if self.kind == "cell":
            return is_copy(self.before, contents(self.obj))
        if key is EMPTY:
            return is_copy(self.before, _copy(self.obj)[1])
        return is_a(self.obj, dict) and is_copy(self.before.get(key, EMPTY), dict.get(self.obj, key, EMPTY))

    def text(self, key: Any, src: Source | None = None) -> str:
        """Returns the user's expression for what is written to; ``src``: the source by which the code has reached the object now."""
        src = src or self.src
        if type(key) is not str:
            return src.text()
        if self.kind == "class":
            return f"{src.text()}.{key}"
        return f"{src.parent.text()}.{key}" if src.op == "dict" and src.parent is not None else f"{src.text()}[{key!r}]"

    def put_back(self, before: Any) -> None:
        """Makes the contents of the object what a shallow copy of it holds."""
        obj, kind = self.obj, self.kind
        if kind == "dict":
            _put_back(obj, before)
        elif kind == "list":
            list.__setitem__(obj, slice(None), before)
        elif kind == "set":
            set.clear(obj)
            set.update(obj, before)
        elif kind == "deque":
            deque.clear(obj)
            deque.extend(obj, before)
        elif kind == "bytearray":
            obj[:] = before
        elif kind == "class":
            _put_back_class(obj, before)
        elif before is EMPTY:
            del obj.cell_contents
        else:
            obj.cell_contents = before


class Met(NamedTuple):
    """A write that an opaque call makes, or its read of something that was written to in the segment."""

    verb: str
    src: Source
    text: str
    # For a read: whether it found again what was there before the segment, or a copy of that.
    found_again: bool
    # What was written to, and the key; None: a slot.
    written: Written | None = None
    key: Any = None

    @property
    def is_renewal(self) -> bool:
        """Returns whether a read found what was there before the segment, or a write has left that, or a copy of it."""
        return self.found_again if self.verb == "reads" else self.written is not None and self.written.is_renewed(self.key)


class Version(NamedTuple):
    """The version of a tensor before the segment. ``plain``: it had no autograd history, and a write may give it one."""

    number: int
    plain: bool


class DataWrites:
    """The assignments to ``.data`` of one tensor: what has its memory in the capture, its memory before the segment, and the values."""

    __slots__ = ("before", "held", "values")

    def __init__(self, held: Tensor, before: Tensor) -> None:
        self.held, self.before, self.values = held, before, list[Tensor]()


class Reads:
    """What a hook reads when it runs, later than its capture: it must not change before the segment ends."""

    __slots__ = ("cells", "names")

    def __init__(self, names: frozenset[str], cells: list[CellType]) -> None:
        # The names of the globals, which are functions and modules, and of attributes.
        self.names = names
        self.cells = [(cell, cell.cell_contents) for cell in cells]

    def changed(self, writes: frozenset[Write]) -> bool:
        """Returns whether one of ``writes``, or of a cell, has changed what the hook reads."""
        if any([type(key) is str and key in self.names for key in writes]):
            return True
        return any([contents(cell) is not value for cell, value in self.cells])


class Registration:
    """One registered hook. ``handle``: what the user's code holds; on fakes it is only a stand-in, which nothing reads.

    ``method``: of ``tensor``; None if that is the ticket of a hook in the graph (`fx.hook_node`).
    """

    __slots__ = ("called_at", "event", "handle", "hook", "method", "node", "reads", "tensor")

    def __init__(self, tensor: Tensor, method: str | None, hook: Any, handle: RemovableHandle, called_at: tuple[CodeType, int] | None) -> None:
        self.tensor, self.method, self.hook, self.handle, self.called_at = tensor, method, hook, handle, called_at
        # Of a hook in the graph: its node, and what it reads.
        self.node: Node | None = None
        self.reads: Reads | None = None
        # Tells why a hook of a tensor in the graph is no part of the graph, and runs eagerly in the backward pass.
        self.event: Event | None = None

    def outside(self, text: str) -> NotReconstructible:
        """Returns the exception that makes the registration run eagerly, between two graphs."""
        return NotReconstructible(text, self.called_at)


class ModuleHook:
    """One handle of a hook on a module, made in the segment, with the dicts that hold the hook."""

    __slots__ = ("called_at", "dicts", "handle")

    def __init__(self, handle: RemovableHandle, dicts: tuple[dict[int, Any], ...], called_at: tuple[CodeType, int] | None) -> None:
        self.handle, self.dicts, self.called_at = handle, dicts, called_at

    @property
    def lasts(self) -> bool:
        """Returns whether the hook has not been removed."""
        return any([self.handle.id in hooks for hooks in self.dicts])

    @property
    def outside(self) -> NotReconstructible:
        """The exception that makes the registration run eagerly, between two graphs."""
        return NotReconstructible("a hook on a module, which has another number at each call", self.called_at)


class HookLog:
    """The hooks of a segment, in the order in which the code has registered and removed them."""

    __slots__ = ("_count", "_shown", "by_handle", "events", "holders", "of_modules")

    def __init__(self) -> None:
        # Registrations on tensors from before the segment, and of hooks that run eagerly, which the program makes; True: the removal of one.
        self.events: list[tuple[Registration, bool]] = []
        self.by_handle: IdentityMap[Registration] = IdentityMap()
        self.of_modules: IdentityMap[ModuleHook] = IdentityMap()
        # Dicts out of which handles from before the segment have taken their hooks.
        self.holders = IdentitySet()
        # Dicts of hooks that the user's code has read.
        self._shown = IdentitySet()
        # The count of handles before the first one of the segment.
        self._count = RemovableHandle.next_id

    def __len__(self) -> int:
        return len(self.events) + len(self.by_handle) + len(self.of_modules)

    def add(self, made: Registration) -> None:
        if not (self.by_handle or self.of_modules):
            self._count = RemovableHandle.next_id - (made.handle.__dict__ != {})
        self.by_handle[made.handle] = made
        if made.node is None:
            self.events.append((made, False))

    @property
    def eager_events(self) -> list[Event]:
        """What tells of the hooks that run eagerly."""
        return [made.event for made in self.by_handle.values() if made.event is not None]

    def add_to_module(self, made: ModuleHook) -> None:
        """Notes a handle that is about to get its number."""
        if not (self.by_handle or self.of_modules):
            self._count = RemovableHandle.next_id
        self.of_modules[made.handle] = made

    def show(self, hooks: dict[int, Any]) -> bool:
        """Notes that the user's code reads a dict of hooks; returns whether a hook of the segment is in there, with its number."""
        self._shown.add(hooks)
        return any([made.lasts and any([hooks is d for d in made.dicts]) for made in self.of_modules.values()])

    def find(self, number: Any, hooks: Any) -> ModuleHook | None:
        """Returns the hook with that number in a dict, if the segment has registered it."""
        found = (made for made in self.of_modules.values() if made.handle.id == number and any([hooks is d for d in made.dicts]))
        return next(found, None)

    def are_shown(self, dicts: Iterable[dict[int, Any]]) -> bool:
        """Returns whether the user's code has read one of the dicts: it may see the numbers of hooks there."""
        return any([d in self._shown for d in dicts])

    def check(self, writes: Callable[[], frozenset[Write]]) -> None:
        """Raises `NotReconstructible` if what a hook in the graph reads has changed since its capture."""
        for made in self.by_handle.values():
            if made.reads is not None and made.reads.changed(writes()):
                raise made.outside("a hook on a tensor, which reads what the code changes after it has registered the hook")

    def undo(self) -> None:
        """Removes the hooks that the capture has registered on tensors from before the segment."""
        for made, removed in reversed(self.events):
            if not removed and made.handle.__dict__:
                made.handle.remove()
        if self.by_handle or self.of_modules:
            RemovableHandle.next_id = self._count

    def clear(self) -> None:
        self.events.clear()
        self.by_handle.clear()
        self.of_modules.clear()
        self.holders.clear()
        self._shown.clear()


class Setting:
    """One value of a context variable. ``token``: what the user's code resets it with."""

    __slots__ = ("called_at", "token", "value", "var")

    def __init__(self, var: ContextVar[Any], value: Any, token: Token[Any], called_at: tuple[CodeType, int] | None) -> None:
        self.var, self.value, self.token, self.called_at = var, value, token, called_at


class SettingsLog:
    """The context variables that a segment, or the code of a sub-graph, has set and not reset, in order."""

    __slots__ = ("around", "by_token", "events", "timing")

    def __init__(self, around: SettingsLog | None = None, timing: Timing = Timing.NOW) -> None:
        self.events: list[Setting] = []
        # Also those that were reset: the code may still hold the token.
        self.by_token: IdentityMap[Setting] = IdentityMap()
        # Of a sub-graph: the log of the code around it, and when its code runs.
        self.around, self.timing = around, timing

    def add(self, made: Setting) -> None:
        self.events.append(made)
        self.by_token[made.token] = made

    def __len__(self) -> int:
        return len(self.by_token)

    def _sets(self, var: ContextVar[Any]) -> bool:
        return any([made.var is var for made in self.events])

    def is_set(self, var: ContextVar[Any]) -> bool:
        return self._sets(var) or (self.around is not None and self.around.is_set(var))

    def may_differ(self, var: ContextVar[Any]) -> bool:
        """Returns whether a variable may have another value when the code of a sub-graph runs than at its capture."""
        if self.around is None or self._sets(var):
            return False
        return self.timing is Timing.LATER or (self.timing is Timing.AGAIN and self.around.is_set(var)) or self.around.may_differ(var)

    def ends_with(self, var: Any, token: Any) -> bool:
        """Returns whether the last setting is that of ``token``."""
        return bool(self.events) and self.events[-1].var is var and self.events[-1].token is token

    def undo(self) -> None:
        """Resets the variables."""
        while self.events:
            made = self.events.pop()
            made.var.reset(made.token)

    def clear(self) -> None:
        self.events.clear()
        self.by_token.clear()


class MutationLog:
    """The replay list of a program, and the undo log of the capture."""

    def __init__(self) -> None:
        # Each `Written` keeps its object alive.
        self.written: AddressMap[Written] = AddressMap()
        # By the ids of an object and a descriptor, which each entry keeps alive.
        self.slots: dict[tuple[int, int], tuple[Any, Source, Any, Any]] = {}
        # The names of the attributes of classes that are written to.
        self.class_attributes: set[str] = set()
        # The storages that operators write into, each with a copy, if an error may have to undo the writes. Storages instead of tensors, because
        # a tensor may have another storage when the writes are undone.
        self.storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        # The tensors that are written into.
        self.versions: IdentityMap[Version] = IdentityMap()
        # Numbers that symbols replace for now: (container, key or index, original item, item with symbols).
        self.replaced: list[tuple[Any, Any, Any, Any]] = []
        # Calls that the program repeats at its end, because a cache or Python counts them: (function, arguments, keyword arguments).
        self.calls: list[tuple[Any, list, dict]] = []
        # The calls of cached functions that were really made, as (function, key), and those made in attempts that were undone.
        self.cached: list[tuple[Any, Any]] = []
        self.ahead: list[tuple[Any, Any]] = []
        # The tensors whose ``.data`` is set.
        self.data: IdentityMap[DataWrites] = IdentityMap()
        # The masks that operators on a `DTensor` have left for later ones: by the object that holds one, what this held before, and for how many.
        self.masks: IdentityMap[tuple[Any, int]] = IdentityMap()
        # The hooks on tensors that are registered and removed.
        self.hooks = HookLog()
        self.settings = SettingsLog()
        # Traceback entries that are put before the old traceback of an existing exception, with the source of the exception.
        self.seams: IdentityMap[Source] = IdentityMap()
        # While an opaque call runs: each write, and each read of a written value.
        self.met: list[Met] | None = None

    def wrote(self, obj: Any) -> bool:
        """Returns whether an object other than a dict was written to: its contents are then not the ones that the next call starts with."""
        return self._meet(self.written.get(obj)) is not None

    def is_dirty(self, d: Any, key: Any) -> bool:
        w = self.written[d]
        dirty = w.whole or key in w.keys
        return dirty and self._meet(w, key) is w

    def before(self, obj: Any) -> Any:
        w = self._meet(self.written.get(obj))
        return obj if w is None else w.before

    def _meet(self, w: Written | None, key: Any = EMPTY) -> Written | None:
        if w is not None and self.met is not None:
            self.met.append(Met("reads", w.src, w.text(key), w.is_renewed(key)))
        return w

    def note(self, obj: Any, src: Source, key: Any = EMPTY) -> None:
        """Notes a write that is about to happen: to ``key`` of ``obj``, or, without a key, to any part of it."""
        w = self.written.get(obj)
        if w is None:
            kind, before = _copy(obj)
            w = self.written[obj] = Written(obj, src, kind, before)
        if self.met is not None:
            self.met.append(Met("changes", src, w.text(key, src), False, w, key))
        if key is EMPTY:
            w.whole = True
        else:
            w.keys.add(key)

    def note_class(self, cls: type, src: Source, name: str) -> None:
        """Notes a write to an attribute of a class, which is about to happen: to an item of its dict, which only the class can write."""
        space = own_dict(cls)
        if space not in self.written:
            self.written[space] = Written(cls, src, "class", dict(space))
        self.class_attributes.add(name)
        self.note(space, src, name)

    def class_written(self, cls: type, name: str) -> bool:
        """Returns whether the attribute of a class, not that of a base, was written to."""
        if name not in self.class_attributes:
            return False
        space = own_dict(cls)
        return space in self.written and self.is_dirty(space, name)

    def replaceable(self, obj: Any, key: Any, value: Any) -> bool:
        """Returns whether ``value``, which ``obj`` has held since before the segment, may be replaced by a symbol or a tuple with symbols."""
        if type(value) not in _NUMBERS or type(obj) not in _HOLDERS:
            return False
        return obj not in self.written or (is_a(obj, dict) and not self.is_dirty(obj, key))

    def replace(self, obj: Any, key: Any, value: Any) -> None:
        """Replaces an item of a dict, list or deque by ``value``, as if ``value`` had been there before the segment."""
        self.replaced.append((obj, key, obj[key], value))
        obj[key] = value
        w = self.written.get(obj)
        if w is not None:
            w.before[key] = value

    def original(self, value: Any) -> Any:
        """Returns ``value``, an item or a tuple of items, with the original numbers instead of the symbols that replace them in containers."""
        if not self.replaced:
            return value
        numbers = IdentityMap([(new, old) for _, _, old, new in self.replaced])
        if type(value) is tuple and any([v in numbers for v in value]):
            return tuple([self.original(v) for v in value])
        return numbers.get(value, value)

    def note_slot(self, obj: Any, src: Source, descriptor: Any, old: Any) -> None:
        """Notes that a slot, or a tensor's attribute, is about to be set through its descriptor."""
        if self.met is not None:
            self.met.append(Met("changes", src, f"{src.text()}.{descriptor.__name__}", False))
        self.slots.setdefault((id(obj), id(descriptor)), (obj, src, descriptor, old))

    def set_slot(self, obj: Any, src: Source, descriptor: Any, old: Any, value: Any) -> None:
        """Sets a slot, or a tensor's attribute, through its descriptor. A refused write is not noted: no program repeats it."""
        key = id(obj), id(descriptor)
        known = key in self.slots
        self.note_slot(obj, src, descriptor, old)
        try:
            descriptor.__set__(obj, value)
        except BaseException:
            if not known:
                del self.slots[key]
            raise

    def note_trace(self, e: BaseException, src: Source, old: TracebackType | None, first: TracebackType) -> None:
        """Notes that ``first`` is put before the ``old`` traceback entries of an exception that passes frames."""
        if not self.slot_written(e, TRACEBACK):
            self.note_slot(e, src, TRACEBACK, old)
            self.seams[first] = src

    def slot_written(self, obj: Any, descriptor: Any) -> bool:
        slot = self.slots.get((id(obj), id(descriptor)))
        if slot is not None and self.met is not None:
            self.met.append(Met("reads", slot[1], f"{slot[1].text()}.{descriptor.__name__}", False))
        return slot is not None

    def note_setting_read(self, src: Source) -> None:
        """Notes that the code reads a context variable that it has set."""
        if self.met is not None:
            self.met.append(Met("reads", src, f"{src.text()}.get()", False))

    def effects(self) -> int:
        """Returns the number of writes so far to objects from before the segment, and to context variables."""
        return len(self.written) + len(self.slots) + len(self.settings)

    def note_hook(self, made: Registration) -> None:
        """Notes that a hook on a tensor is registered."""
        self.hooks.add(made)

    def note_cached(self, fn: Any, key: Any) -> None:
        """Notes a call of a cached function that is really made: no attempt after this one makes it again."""
        self.cached.append((fn, key))

    def note_call(self, fn: Any, args: list, kwargs: dict) -> None:
        """Notes a call that the program repeats: a hit in the cache of a function, which counts hits and their order, or a warning."""
        self.calls.append((fn, args, kwargs))

    def set_data(self, t: Tensor, held: Tensor, value: Tensor) -> None:
        """Sets ``.data`` of ``held``, which has the memory of ``t`` in the capture; the graph does it again."""
        # A mode of the user's would count it.
        with torch._C._DisableTorchDispatch():
            before = held.data
            held.data = value
        if t not in self.data:
            self.data[t] = DataWrites(held, before)
        self.data[t].values.append(value)

    @contextlib.contextmanager
    def as_before(self) -> Iterator[None]:
        """A context in which tensors have the memory that they had before the segment, as the example inputs of its graph."""
        with torch._C._DisableTorchDispatch():
            now = [(w.held, w.held.data) for w in self.data.values()]
            self._put_back_data()
        try:
            yield
        finally:
            with torch._C._DisableTorchDispatch():
                for t, after in now:
                    t.data = after

    def _put_back_data(self) -> None:
        for w in self.data.values():
            w.held.data = w.before

    def writes(self) -> frozenset[Write]:
        """Returns the places that were written to, as `HookLog` compares them."""
        keys = [key for w in self.written.values() for key in (*w.keys, *((None,) if w.whole and w.kind != "cell" else ()))]
        # Code reads a context variable by this method.
        read = ["get"] if self.settings.events else []
        return frozenset([*keys, *[descr.__name__ for _, _, descr, _ in self.slots.values()], *read])

    def note_storage(self, t: Tensor) -> None:
        """Notes the version of a tensor and copies its storage, because it is about to be written into."""
        self.note_version(t)
        storage = t.untyped_storage()
        if storage._cdata not in self.storages:
            with torch._C._DisableTorchDispatch():
                self.storages[storage._cdata] = storage, storage.clone()

    def note_version(self, t: Tensor) -> None:
        """Notes the version of a tensor, which is about to change."""
        if t in self.versions or t.is_inference():
            return
        self.versions[t] = Version(t._version, not t.requires_grad and not t._is_view())

    def note_mask(self, buffer: Any) -> None:
        """Notes that an operator has left a mask in ``buffer``, which has counted it."""
        if buffer not in self.masks:
            left = buffer.refcount - 1
            self.masks[buffer] = (buffer.data if left else None, left)

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        """Puts back the contents of what was written to after code that writes to it unobserved."""
        held = [(w, _copy(w.obj)[1]) for w in self.written.values()]
        try:
            yield
        finally:
            for w, now in held:
                w.put_back(now)

    def take_over(self, later: MutationLog) -> None:
        """Merges the storages and versions from the mutation log of code that ran later; older entries win."""
        self.storages, versions = later.storages | self.storages, later.versions.copy()
        versions.update(self.versions)
        self.versions = versions
        for buffer, before in later.masks.items():
            self.masks.setdefault(buffer, before)

    def undo_storages(self) -> None:
        """Restores the contents and versions of the tensors."""
        for storage, before in self.storages.values():
            put_back_memory(storage, before)
        # Newest first: a view shares its version counter with its base.
        for t, version in reversed(self.versions.items()):
            # A backward pass of a graph from before the call may check the version.
            torch._C._autograd._unsafe_set_version_counter((t,), (version.number,))

    def undo(self) -> None:
        """Restores the state before the segment."""
        with torch._C._DisableTorchDispatch():
            self._put_back_data()
        self.undo_storages()
        for buffer, (mask, count) in self.masks.items():
            buffer.data, buffer.refcount = mask, count
        for t, version in self.versions.items():
            if version.plain and t.requires_grad:
                t.detach_()
        # Before the slots: the count of handles is one, if the code has written to it.
        self.hooks.undo()
        for w in self.written.values():
            w.put_back(w.before)
        for obj, _, descriptor, old in self.slots.values():
            if old is EMPTY:
                descriptor.__delete__(obj)
            else:
                descriptor.__set__(obj, old)
        for obj, key, old, _ in self.replaced:
            obj[key] = old
        self.settings.undo()

    def forget(self) -> None:
        """Drops all references: the traceback of an exception leads to this log, which would keep all written objects alive."""
        tables: tuple[Any, ...] = (self.written, self.slots, self.storages, self.versions, self.replaced, self.calls, self.cached, self.ahead, self.seams)
        for table in (*tables, self.class_attributes, self.data, self.masks, self.hooks, self.settings):
            table.clear()


def is_copy(before: Any, now: Any, depth: int = 0) -> bool:
    """Returns whether ``now`` is ``before``, or is of the same class and holds the same objects, or copies of them; runs no code of the user's."""
    if before is now:
        return True
    t = type(before)
    if type(now) is not t or depth == MOST_NESTED:
        return False
    if t is set or t is frozenset:
        return set(map(id, before)) == set(map(id, now))
    if t is dict:
        return list(map(id, before)) == list(map(id, now)) and _are_copies(before.values(), now.values(), depth)
    if t is list or t is tuple or t is deque:
        return len(before) == len(now) and _are_copies(before, now, depth)
    if not is_plain_class(t):
        return False
    return is_copy(object.__getattribute__(before, "__dict__"), object.__getattribute__(now, "__dict__"), depth + 1)


def _are_copies(before: Iterable, now: Iterable, depth: int) -> bool:
    return all([is_copy(a, b, depth + 1) for a, b in zip(before, now, strict=True)])


def is_plain_class(t: type) -> bool:
    """Returns whether all that objects of a class hold is in their ``__dict__``."""
    fields = (t.__dictoffset__ > 0) + (t.__weakrefoffset__ > 0)
    return is_users_class(t) and type(t) is type and t.__dictoffset__ != 0 and t.__basicsize__ == object.__basicsize__ + 8 * fields


def has_history(t: Tensor) -> bool:
    return t.requires_grad and not disowned(t) and not t.is_leaf


def _put_back(d: dict, before: dict) -> None:
    """Restores the contents of ``d`` in place. It may be a module's globals, so it is never empty in between."""
    cls: Any = OrderedDict if is_a(d, OrderedDict) else dict
    for key in [k for k in cls.keys(d) if k not in before]:
        cls.__delitem__(d, key)
    # By identity: ``==`` may run the user's code, and on tensors it is an operator.
    if list(map(id, cls.keys(d))) != [id(k) for k in before if k in d] or len(d) != len(before):
        for key in list(cls.keys(d)):
            cls.__delitem__(d, key)
    for key, value in before.items():
        if dict.get(d, key, EMPTY) is not value:
            cls.__setitem__(d, key, value)


def _put_back_class(cls: type, before: dict[str, Any]) -> None:
    space = own_dict(cls)
    for name in [name for name in space if name not in before]:
        type.__delattr__(cls, name)
    for name, value in before.items():
        if space.get(name, EMPTY) is not value:
            type.__setattr__(cls, name, value)


def own_dict(cls: type) -> dict[str, Any]:
    """Returns the dict of a class, which must not be written: the class caches what lookups find."""
    found: dict[str, Any] = gc.get_referents(TYPE_DICT.__get__(cls))[0]
    return found


def _copy(obj: Any) -> tuple[str, Any]:
    if is_a(obj, OrderedDict):
        return "dict", dict(OrderedDict.items(obj))
    if is_a(obj, dict):
        return "dict", dict(dict.items(obj))
    if is_a(obj, list):
        return "list", list(list.__iter__(obj))
    if is_a(obj, set):
        return "set", set(set.__iter__(obj))
    if is_a(obj, deque):
        return "deque", list(deque.__iter__(obj))
    if is_a(obj, bytearray):
        return "bytearray", bytes(obj)
    if is_a(obj, CellType):
        return "cell", contents(obj)
    if is_a(obj, type):
        return "class", dict(own_dict(obj))
    raise TypeError(f"writes to {type(obj).__name__} are not logged")
