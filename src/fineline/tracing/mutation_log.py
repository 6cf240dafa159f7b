"""Writes to objects that existed before the segment: what was there, and which parts were written."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from types import CellType, TracebackType
from typing import Any

import torch
from torch import Tensor

from fineline.exception_slots import TRACEBACK
from fineline.fx.output_fixups import disowned
from fineline.guards.source import Source
from fineline.identity import AddressMap, IdentityMap
from fineline.kinds import is_a
from fineline.torch_facts.tensor_backup import put_back_memory

EMPTY = object()
# Bytes of tensors that are copied at each call: a microsecond or two.
MOST_KEPT = 2**16
_NUMBERS = (float, int, tuple)
_HOLDERS = (dict, OrderedDict, defaultdict, Counter, list, deque)


def contents(cell: CellType) -> Any:
    """Returns what the cell holds; EMPTY if nothing."""
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
        # Told apart as a dict does it: 1 and True are one.
        self.keys: set[Any] = set()
        self.whole = False


class MutationLog:
    """The replay list of a program, and the undo log of the capture."""

    def __init__(self) -> None:
        # Each `Written` holds its object.
        self.written: AddressMap[Written] = AddressMap()
        # By the ids of an object and a descriptor, which each entry holds.
        self.slots: dict[tuple[int, int], tuple[Any, Source, Any, Any]] = {}
        # The memory that operators write into, with a copy; kept where an error may have to take the writes back. Not the tensors, which
        # may have other memory by then.
        self.storages: dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]] = {}
        # ... and the tensors, with their versions; those of them that had no history: what is written may have one.
        self.versions: IdentityMap[int] = IdentityMap()
        self.plain: list[Tensor] = []
        # Numbers for which symbols stand meanwhile: (container, key or place, number or what holds it, what stands there).
        self.replaced: list[tuple[Any, Any, Any, Any]] = []
        # Calls whose results a cache of the user's holds: (function, arguments, keyword arguments).
        self.hits: list[tuple[Any, list, dict]] = []
        # Those of them that have really been made, as (function, key), and those that were in attempts which have been taken back.
        self.cached: list[tuple[Any, Any]] = []
        self.ahead: list[tuple[Any, Any]] = []
        # Entries of tracebacks that stand in front of what an exception from before the segment has, with where that comes from.
        self.seams: IdentityMap[Source] = IdentityMap()
        # While a call runs that is to be one node: each write, and each read of what has been written, as (verb, source, text).
        self.met: list[tuple[str, Source, str]] | None = None

    def wrote(self, obj: Any) -> bool:
        """Returns whether an object, other than a dict, was written to: what it holds is then not what the next call will find."""
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
            self.met.append(("reads", w.src, _text(w.src, key)))
        return w

    def note(self, obj: Any, src: Source, key: Any = EMPTY) -> None:
        """Notes a write that is about to happen: of ``key`` of ``obj``, or, without a key, of any part of it."""
        if self.met is not None:
            self.met.append(("changes", src, _text(src, key)))
        w = self.written.get(obj)
        if w is None:
            kind, before = _copy(obj)
            w = self.written[obj] = Written(obj, src, kind, before)
        if key is EMPTY:
            w.whole = True
        else:
            w.keys.add(key)

    def replaceable(self, obj: Any, key: Any, value: Any) -> bool:
        """Returns whether ``value``, which ``obj`` holds since before the segment, may be a symbol, or have some in it."""
        if type(value) not in _NUMBERS or type(obj) not in _HOLDERS:
            return False
        return obj not in self.written or (is_a(obj, dict) and not self.is_dirty(obj, key))

    def replace(self, obj: Any, key: Any, value: Any) -> None:
        """Lets ``value`` stand for what a dict, list or deque holds, as if it had been there before."""
        self.replaced.append((obj, key, obj[key], value))
        obj[key] = value
        w = self.written.get(obj)
        if w is not None:
            w.before[key] = value

    def original(self, value: Any) -> Any:
        """Returns ``value``, an item or a tuple of items, with the numbers themselves where symbols stand for them in containers."""
        if not self.replaced:
            return value
        numbers = IdentityMap([(new, old) for _, _, old, new in self.replaced])
        if type(value) is tuple and any([v in numbers for v in value]):
            return tuple([self.original(v) for v in value])
        return numbers.get(value, value)

    def note_slot(self, obj: Any, src: Source, descriptor: Any, old: Any) -> None:
        """Notes that a slot, or a tensor's attribute, is about to be set through its descriptor."""
        if self.met is not None:
            self.met.append(("changes", src, f"{src.text()}.{descriptor.__name__}"))
        self.slots.setdefault((id(obj), id(descriptor)), (obj, src, descriptor, old))

    def set_slot(self, obj: Any, src: Source, descriptor: Any, old: Any, value: Any) -> None:
        """Sets a slot, or a tensor's attribute, through its descriptor. What that refuses is no write: no program makes it."""
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
            self.met.append(("reads", slot[1], f"{slot[1].text()}.{descriptor.__name__}"))
        return slot is not None

    def note_hit(self, fn: Any, args: list, kwargs: dict) -> None:
        """Notes a hit in the cache of a function, because the cache counts hits and their order."""
        self.hits.append((fn, args, kwargs))

    def note_storage(self, t: Tensor) -> None:
        """Keeps what is in the memory of a tensor that is about to be written into."""
        self.note_version(t)
        storage = t.untyped_storage()
        if storage._cdata not in self.storages:
            with torch._C._DisableTorchDispatch():
                self.storages[storage._cdata] = storage, storage.clone()

    def note_version(self, t: Tensor) -> None:
        """Keeps the version of a tensor, which is about to change."""
        if t in self.versions or t.is_inference():
            return
        self.versions[t] = t._version
        if not t.requires_grad and not t._is_view():
            self.plain.append(t)

    def take_over(self, later: MutationLog) -> None:
        """Keeps what a mutation log of what ran since has kept of tensors."""
        self.storages, versions = later.storages | self.storages, later.versions.copy()
        versions.update(self.versions)
        self.versions = versions
        self.plain += later.plain

    def undo_storages(self) -> None:
        """Puts back what was in the tensors."""
        for storage, before in self.storages.values():
            put_back_memory(storage, before)
        # The newest first: a view counts together with what it is a view of.
        for t, version in reversed(self.versions.items()):
            # A backward pass from before the call may need it.
            torch._C._autograd._unsafe_set_version_counter((t,), (version,))

    def undo(self) -> None:
        """Puts back what was there before the segment, newest kinds last."""
        self.undo_storages()
        for t in self.plain:
            if t.requires_grad:
                t.detach_()
        for w in self.written.values():
            if w.kind == "dict":
                _put_back(w.obj, w.before)
            elif w.kind == "list":
                list.__setitem__(w.obj, slice(None), w.before)
            elif w.kind == "set":
                set.clear(w.obj)
                set.update(w.obj, w.before)
            elif w.kind == "deque":
                deque.clear(w.obj)
                deque.extend(w.obj, w.before)
            elif w.kind == "bytearray":
                w.obj[:] = w.before
            elif w.kind == "cell":
                if w.before is EMPTY:
                    del w.obj.cell_contents
                else:
                    w.obj.cell_contents = w.before
        for obj, _, descriptor, old in self.slots.values():
            if old is EMPTY:
                descriptor.__delete__(obj)
            else:
                descriptor.__set__(obj, old)
        for obj, key, old, _ in self.replaced:
            obj[key] = old

    def forget(self) -> None:
        """Lets go of all that was written: the traceback of an exception leads to this run, and to all that its frames hold."""
        tables: tuple[Any, ...] = (self.written, self.slots, self.storages, self.versions, self.plain, self.replaced, self.hits, self.cached, self.ahead, self.seams)
        for table in tables:
            table.clear()


def has_history(t: Tensor) -> bool:
    return t.requires_grad and not disowned(t) and not t.is_leaf


def _text(src: Source, key: Any) -> str:
    if type(key) is not str:
        return src.text()
    return f"{src.parent.text()}.{key}" if src.op == "dict" and src.parent is not None else f"{src.text()}[{key!r}]"


def _put_back(d: dict, before: dict) -> None:
    """Makes ``d`` what it was, in place; it may be a module's globals, which must not be empty for a moment."""
    cls: Any = OrderedDict if is_a(d, OrderedDict) else dict
    for key in [k for k in cls.keys(d) if k not in before]:
        cls.__delitem__(d, key)
    # By identity: == may be the user's code, and of tensors it is an operator.
    if list(map(id, cls.keys(d))) != [id(k) for k in before if k in d] or len(d) != len(before):
        for key in list(cls.keys(d)):
            cls.__delitem__(d, key)
    for key, value in before.items():
        if dict.get(d, key, EMPTY) is not value:
            cls.__setitem__(d, key, value)


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
    raise TypeError(f"writes to {type(obj).__name__} are not logged")
