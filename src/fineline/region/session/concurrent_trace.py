"""The records of a capture that runs beside the user's code, in a thread of its own: what it has read must stay, and it writes nothing.

Guards alone do not suffice there. A value may change after its guard was made, be read once more, and change back before the next call: the
guard then holds for a program that has seen both values. So each read is compared with the first one of the same place.
"""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from torch import Tensor

from fineline.frames.graph_breaks import Restart
from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts, TensorFacts
from fineline.guards.source import GuardBuilder, Source
from fineline.identity import AddressMap, AddressSet
from fineline.kinds import is_a, is_users_class
from fineline.torch_facts.thread_state import OF_PROCESS, sets_shared_state
from fineline.tracing.deferred_values import DeferredValues
from fineline.tracing.guarded_trace import TraceOwner
from fineline.tracing.mutation_log import EMPTY, MutationLog, Registration, Written
from fineline.tracing.plain_values import PINNED, VALUES
from fineline.tracing.segment_state import SegmentState
from fineline.tracing.segment_trace import SegmentTrace

# Callables that are made at each read, with the attributes that identify them.
_MADE_AT_READS = {
    types.MethodType: ("__self__", "__func__"),
    types.BuiltinFunctionType: ("__self__", "__name__"),
    types.MethodWrapperType: ("__self__", "__name__", "__objclass__"),
}


def _refuse(text: str) -> NoReturn:
    raise Restart("FL016", text)


def _refuse_change(what: str) -> NoReturn:
    raise Restart("FL017", f"{what} changes meanwhile")


class ConcurrentGuards(GuardBuilder):
    """Guards of reads beside the user's code. Raises `Restart` where a place has another value than at the first read."""

    def __init__(self, interp: Any) -> None:
        super().__init__(interp)
        self._payloads: dict[tuple[int, object], Any] = {}

    def root(self, i: int, name: str, value: object) -> Source:
        return _checked(super().root(i, name, value), value)

    def type_attr(self, cls: type, name: str, value: object) -> Source:
        return _checked(super().type_attr(cls, name, value), value)

    def access(self, parent: Source, op: str, key: object, value: object) -> Source:
        if is_a(parent.value, threading.local):
            _refuse("it reads a variable that each thread has for itself")
        return _checked(super().access(parent, op, key, value), value)

    def check(self, src: Source, op: str, payload: Any, ident: object = None) -> None:
        before = self._payloads.setdefault((src.reg, op if ident is None else (op, ident)), payload)
        if not (_same_predicate if op == "predicate" else _same)(before, payload):
            _refuse_change(src.text())
        super().check(src, op, payload, ident)

    def tensor(self, src: Source, facts: TensorFacts) -> None:
        if "tensor" in src.checked and not _same(self.tensors[src.reg], facts):
            _refuse_change(src.text())
        super().tensor(src, facts)


def _checked(src: Source, value: object) -> Source:
    if not _same(src.value, value):
        _refuse_change(src.text())
    return src


def _same(a: Any, b: Any) -> bool:
    """Returns whether two reads have given the same object, or objects that are the same to all code."""
    if a is b:
        return True
    t = type(a)
    if t is not type(b):
        return False
    if is_a(a, tuple):
        return len(a) == len(b) and all(map(_same, tuple.__iter__(a), tuple.__iter__(b)))
    if t in VALUES:
        return bool(a == b) or (a != a and b != b)
    if t is frozenset:
        # The contents of a set, whose elements are compared by identity or are plain values.
        return bool(a == b)
    parts = _MADE_AT_READS.get(t)
    return parts is not None and all([_same(getattr(a, name), getattr(b, name)) for name in parts])


def _same_predicate(a: tuple[Any, str], b: tuple[Any, str]) -> bool:
    """Returns whether two predicates compare with the same: their texts say with what."""
    return a[0] is b[0] or (type(a[0]) is type(b[0]) and a[1] == b[1])


class NoContainers:
    """In place of the containers whose contents are guarded: each read of one guards it once more, and so compares it with the reads before."""

    def __contains__(self, container: object) -> bool:
        return False

    def add(self, container: object) -> None:
        """Forgets it."""

    def update(self, containers: Iterable[object]) -> None:
        """Forgets them."""

    def clear(self) -> None:
        """Has nothing to forget."""


class SealedLog(MutationLog):
    """The log of a capture whose writes code beside it would see. Raises `Restart` before a write to anything but copies."""

    def __init__(self) -> None:
        super().__init__()
        # The copies that stand for the dicts of instances; the trace keeps them alive.
        self.copies = AddressSet()

    def note(self, obj: Any, src: Source, key: Any = EMPTY) -> None:
        if obj not in self.copies:
            _refuse(f"it changes {Written(obj, src, '', None).text(key)}")
        super().note(obj, src, key)

    def note_class(self, cls: type, src: Source, name: str) -> None:
        _refuse(f"it sets {src.text()}.{name}")

    def replace(self, obj: Any, key: Any, value: Any) -> None:
        _refuse("a number in a container varies")

    def note_slot(self, obj: Any, src: Source, descriptor: Any, old: Any) -> None:
        _refuse(f"it sets {src.text()}.{descriptor.__name__}")

    def note_hook(self, made: Registration) -> None:
        _refuse("it registers a hook on a tensor")

    def note_cached(self, fn: Any, key: Any) -> None:
        _refuse(f"it adds an entry to the cache of {getattr(fn, '__name__', 'a function')}")

    def note_mask(self, buffer: Any) -> None:
        _refuse("an operator leaves a mask for later ones")

    def note_storage(self, t: Tensor) -> None:
        """Notes nothing, because operators write into fakes."""

    def note_version(self, t: Tensor) -> None:
        """Notes nothing, as above."""

    def set_data(self, t: Tensor, held: Tensor, value: Tensor) -> None:
        _refuse("it sets the .data of a tensor")

    def undo(self) -> None:
        self.settings.undo()


class SharedState(SegmentState):
    """PyTorch's state in a capture that must not change what other threads see."""

    __slots__ = ()

    def before_change(self, fn: Callable[..., object]) -> None:
        if sets_shared_state(fn):
            _refuse(f"it calls {getattr(fn, '__name__', fn)}, which sets the state of all threads")
        super().before_change(fn)

    def drew(self) -> bool:
        # Operators on fakes draw nothing; the user's code may, beside them.
        return False

    def now(self) -> AmbientFacts:
        # What all threads share is not the captured code's doing: no program sets it, and no backend sees it set or put back.
        return super().now()._replace(**{name: getattr(self.start, name) for name in OF_PROCESS})

    def check(self) -> None:
        """Raises `Restart` if the state that all threads share is not what it was at the start."""
        now = AMBIENT.now()
        if any([getattr(now, name) != getattr(self.start, name) for name in OF_PROCESS]):
            _refuse_change("PyTorch's state")


class ConcurrentTrace(SegmentTrace):
    """The record of a segment whose capture runs beside the user's code."""

    __slots__ = ("_exposed", "_shadows")

    guards: ConcurrentGuards
    mutations: SealedLog
    state: SharedState

    def __init__(self, interp: TraceOwner) -> None:
        super().__init__(interp)
        self.guards, self.mutations, self.state = ConcurrentGuards(interp), SealedLog(), SharedState()
        self.deferred = DeferredValues(self.guards)
        self.containers.expanded = NoContainers()
        self.guards.ambient(self.state.start)
        self._shadows: AddressMap[dict] = AddressMap()
        self.namespaces.shadows = self._shadows
        # The dicts of instances that code has got, through which it may read and write them. The sources keep them alive.
        self._exposed = AddressSet()

    def expose(self, d: dict) -> None:
        if d in self._shadows:
            _refuse("it reads the __dict__ of an object whose attributes it sets")
        self._exposed.add(d)

    def dict_source(self, obj: Any, d: dict) -> Source | None:
        if d in self._shadows:
            _refuse(f"it uses a {type(obj).__name__} whose attributes it sets")
        return super().dict_source(obj, d)

    def writable(self, obj: Any, d: dict, src: Source) -> dict:
        if d in self.mutations.copies:
            return d
        if type(d) is not dict or d in self._exposed or not is_users_class(type(obj)) or is_a(obj, (Tensor, BaseException, *PINNED)):
            _refuse(f"it sets an attribute of {src.parent.text() if src.parent is not None else src.text()}")
        found = self._shadows[d] = dict(d)
        self.mutations.copies.add(found)
        self.adopt(found, src)
        return found
