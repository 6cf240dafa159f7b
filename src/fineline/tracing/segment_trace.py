"""The record of one segment of a capture: sources, guards, graph, writes."""

from __future__ import annotations

import enum
import functools
import operator
import types
import weakref
from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fineline.cpython.iterator_states import iterator_state
from fineline.cpython.numpy_scalars import NUMBERS
from fineline.frames.stub_frames import is_of_modules
from fineline.fx.body_recorder import Part
from fineline.fx.recorder import FX_CONSTANTS, TENSOR_TYPE, NotForGraph, Recorder
from fineline.guards.facts import tensor_facts
from fineline.guards.source import GuardBuilder, Source
from fineline.identity import AddressSet, IdentityMap
from fineline.kinds import is_a, is_users_class, is_wrapper_class, taken_as_it_is
from fineline.symbolic.arithmetic import SYMBOLIC
from fineline.torch_facts.distributed_tensors import SamePlacement, holds_masks, is_placement
from fineline.torch_facts.flattening import AttributeRead, attributes_read
from fineline.torch_facts.thread_state import torch_function_state
from fineline.torch_facts.wrapper_subclasses import (
    ABSENT,
    NotTakenApart,
    Parts,
    PutTogether,
    constants_of,
    in_graphs,
    inner_tensor,
    is_jagged,
    methods_of,
    parts_of,
    supported,
    text_of,
)
from fineline.tracing.deferred_values import DeferredValues
from fineline.tracing.graph_failures import GraphFailures
from fineline.tracing.guarded_trace import TraceOwner
from fineline.tracing.identity_guards import (
    LIST_READERS,
    PLAIN_VALUE,
    BaseEquals,
    DequeItem,
    DequeLength,
    SameBytes,
    SameOrder,
    guard_arguments,
    guard_reference,
    has_hidden_state,
    identify,
    list_iterators,
    shown_by,
)  # fmt: skip
from fineline.tracing.local_classes import CLASS_OF, find, load_class, load_member
from fineline.tracing.mutation_log import MutationLog
from fineline.tracing.plain_values import DEFERRED, LAZY, PINNED, PLAIN_TENSORS, SINGLETONS, UNSYMBOLIC, VALUES, hashes_plainly, is_value
from fineline.tracing.recreated_classes import SegmentClasses
from fineline.tracing.segment_state import SegmentState
from fineline.tracing.segment_tables import Guarded, GuardedContainers, Namespaces, SegmentFunctions

# The dtypes that operators take for Python's own types.
DTYPES = types.MappingProxyType({bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128})
# Containers that show the contents of another container, which cannot be reached through them.
WINDOWS = frozenset(
    type(x) for d in (dict[str, int](), OrderedDict[str, int]()) for x in (types.MappingProxyType(d), d.keys(), d.values(), d.items())
)
# The members that identify a bound C method, by its type; and those of callables that never change.
BOUND: dict[type, tuple] = {
    t: tuple([t.__dict__[n] for n in names])
    for t, names in (
        (types.BuiltinFunctionType, ("__name__", "__self__")),
        (types.MethodWrapperType, ("__name__", "__objclass__", "__self__")),
        (slice, ("start", "stop", "step")),  # one that is bounded by tensors, or by objects
    )
}
GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
PARTIAL = tuple([functools.partial.__dict__[n] for n in ("func", "args", "keywords")])
F_CLOSURE = types.FunctionType.__dict__["__closure__"]
F_GLOBALS = types.FunctionType.__dict__["__globals__"]
F_DEFAULTS = types.FunctionType.__dict__["__defaults__"]
F_KWDEFAULTS = types.FunctionType.__dict__["__kwdefaults__"]


class SegmentTrace:
    """The record of one segment: from the start of a call, or a graph break, to the next graph break or the return.

    The fields that most reads need are here. The others are in parts by subject, each in a file named after it.
    """

    __slots__ = (
        "active", "classes", "containers", "deferred", "failures", "functions", "guards", "kept", "made", "mutations", "namespaces", "recorder",
        "sources", "state", "symbols",
    )  # fmt: skip

    def __init__(self, interp: TraceOwner) -> None:
        self.active = True
        self.guards = GuardBuilder(interp)
        self.recorder = Recorder()
        self.mutations = MutationLog()
        # Objects from before the segment. A fact about one holds for this object only, so the table keeps it alive.
        self.sources: IdentityMap[Source] = IdentityMap()
        # Objects created in the segment, which die when they would in eager code. A later object at the same address was created in the segment
        # too, or has a source, which is looked up first.
        self.made = AddressSet()
        # Those of them that the trace keeps alive until the segment ends.
        self.kept: list[Any] = []
        # In fake mode: the symbols for varying sizes and numbers.
        self.symbols: Any = None
        self.deferred = DeferredValues(self.guards)
        self.classes = SegmentClasses(interp.lessons.local_classes)
        self.containers = GuardedContainers()
        self.namespaces = Namespaces()
        self.functions = SegmentFunctions()
        self.failures = GraphFailures()
        self.state = SegmentState()
        self.guards.ambient(self.state.start)

    # -- reading ---------------------------------------------------------------------------------------------------
    def load(self, v: Any, src: Source) -> Any:
        """Registers a value read through ``src`` and guards the facts about it that are known at once; returns the value."""
        # A length may have been checked without a read: for example that there are no hooks.
        if src.checked and (len(src.checked) > 1 or "len" not in src.checked):
            if self.symbols is not None and src.reg in self.symbols.places.numbers:
                # It was a symbol so far; this read uses the number itself.
                if type(v) in LAZY:
                    self.guards.check(src, "eq", v)
            elif (copy := self.deferred.copies.get(src.reg)) is not None and copy is not v:
                self._load_parts(v, src)
            elif self.deferred.numbers and type(v) in UNSYMBOLIC:
                self.deferred.settle(v)
            return v
        t = type(v)
        guards = self.guards
        if t in SINGLETONS:
            guards.check(src, "is", v)
            return v
        if t in VALUES and (t is not slice or is_value(v)):
            if t in LAZY or t in UNSYMBOLIC:
                if v in self.deferred.numbers:
                    # A second source for the same number: the program must not mistake one number for the other.
                    self.deferred.settle(v)
                elif src.op == "root" and not (t is int and -6 < v < 257):
                    self.deferred.put_off(v, src)
                    return v
            guards.check(src, "eq", v)
            return v
        if t is weakref.ref and v in self.made:
            return self._load_reference(v, src)
        if (known := self.sources.get(v)) is not None:
            if known is not src:
                guards.check(src, "same", known.reg)
            self._load_parts(v if v in self.deferred.tuples else (), known)
            return v
        if is_a(v, PINNED):
            if self.classes.given is not None and is_a(v, (type, enum.Enum)):
                self.classes.meet(v if is_a(v, type) else t, src)
            if v in self.classes.local:
                load_member(self, v, src) if is_a(v, enum.Enum) else load_class(self, v, src)
                return v
            if t is types.BuiltinFunctionType and not is_value(v):
                guards.check(src, "type", t)
                self.adopt(v, src)
                self.load_members(v, src, BOUND[t])
                return v
            guards.check(src, *(("predicate", (SamePlacement(v), f"== {v}"), "placement") if is_placement(v) else ("is", v)))
            if is_a(v, (type, types.ModuleType, enum.Enum)):
                self.adopt(v, src)
            return v
        self.adopt(v, src)
        if is_a(v, Tensor):
            self._guard_tensor(v, src)
            return v
        self.check_type(src, t)
        if is_a(v, tuple):
            guards.check(src, "len", tuple.__len__(v))
            for i, item in enumerate(tuple.__iter__(v)):
                part = guards.access(src, "index", i, item)
                if type(item) not in DEFERRED or not self._put_off(item, part):
                    self.load(item, part)
        elif t is frozenset and is_value(v):
            guards.check(src, "set_eq", v)
        elif is_a(v, (int, float, str, bytes, complex)):
            guards.check(src, "predicate", (BaseEquals(v), f"== {PLAIN_VALUE[_base(t)](v)!r}"))
        elif t in BOUND:
            self.load_members(v, src, BOUND[t])
        elif t in GETTERS:
            guards.check(src, "is", v)
        return v

    def _load_reference(self, ref: weakref.ref, src: Source) -> weakref.ref:
        """Guards a weak reference that the code has made too: ``weakref.ref`` returns the same object."""
        self.check_type(src, type(ref))
        guard_reference(self, ref, src)
        return ref

    def _guard_tensor(self, tensor: Tensor, src: Source) -> None:
        facts = tensor_facts(tensor) if self.symbols is None else self.symbols.facts(tensor, src)
        if type(tensor) not in PLAIN_TENSORS and self._recreated(type(tensor), src):
            self.check_type(src, type(tensor))
            facts = facts._replace(cls=None)
        self.guards.tensor(src, facts)
        if facts.cls not in PLAIN_TENSORS and facts.cls is not None and is_wrapper_class(facts.cls):
            self._guard_parts(tensor, src)

    def _guard_parts(self, tensor: Tensor, src: Source) -> None:
        """Guards what a tensor of a wrapper subclass consists of. No operator in a graph gets one without this guard."""
        try:
            if not supported(tensor) or holds_masks(tensor):
                return
            parts = parts_of(tensor)
            if is_jagged(tensor) and not self.containers.wrappers.note_lengths(tensor):
                return
            same = self.containers.wrappers.note(tensor, parts)
        except NotTakenApart:
            return
        self._guard_methods(type(tensor))
        if (reads := attributes_read(tensor, parts)) is not None:
            self._guard_reads(tensor, src, reads)
        else:
            self.guards.check(src, "predicate", (same, text_of(parts)), "parts")
            for name, inner in (*zip(parts.names, parts.tensors, strict=True), *parts.objects):
                self.load(inner, self.guards.access(src, "member", inner_tensor(name), inner))
        for _, inner in parts.objects:
            identify(self, inner)
        self.containers.wrappers.own(tensor, parts)
        if is_jagged(tensor):
            # An operator takes two ragged dimensions for one if the same tensor holds their lengths.
            lengths = [self.sources[x] for x in self.containers.wrappers.lengths]
            self.guards.distinct(lengths[-1:], lengths[:-1])

    def _guard_reads(self, t: Tensor, src: Source, reads: list[AttributeRead]) -> None:
        """Guards what ``__tensor_flatten__`` reads of a tensor, which saves its call."""
        cls, guards = type(t), self.guards
        space = guards.access(src, "dict", None, t.__dict__)
        if t.__dict__ not in self.sources:
            self.adopt(t.__dict__, space)
        # The other ways to answer for an attribute.
        guards.type_lacks(cls, "__getattr__")
        guards.check(guards.type_attr(cls, "__getattribute__", object.__getattribute__), "is", object.__getattribute__)
        for name, own, of_class in reads:
            if of_class is ABSENT:
                guards.type_lacks(cls, name)
            else:
                place = guards.type_attr(cls, name, of_class)
                guards.check(place, "is", of_class)
                if type(of_class) is types.FunctionType:
                    guards.check(place, "function", (of_class.__code__, of_class.__defaults__, of_class.__kwdefaults__))
                else:
                    self._load_constant(of_class, place)
            if own is ABSENT:
                guards.check(space, "absent", name, (str, name))
            else:
                self._load_constant(own, guards.access(space, "key", name, own))

    def _load_constant(self, v: Any, src: Source) -> None:
        """Loads a value, a list or a dict as it is: no symbol takes the place of a number in it."""
        self.load(v, src)
        if type(v) in (list, tuple, torch.Size):
            self.guards.check(src, "len", len(v))
            for n, item in enumerate(v):
                self._load_constant(item, self.guards.access(src, "index", n, item))
        elif type(v) is dict:
            self.guards.check(src, "keys", tuple(v))
            for k, item in v.items():
                self._load_constant(item, self.guards.access(src, "key", k, item))

    def _guard_methods(self, cls: Any) -> None:
        """Guards the methods that take tensors of a wrapper subclass apart and compute their operators."""
        for name, method in methods_of(cls):
            if method is None:
                self.guards.type_lacks(cls, name)
            else:
                self.guards.check(self.guards.type_attr(cls, name, method), "is", method)

    def note_result(self, t: Tensor) -> bool:
        """Notes what the result of an operator, a tensor of a wrapper subclass, consists of; returns False if the operator has replaced its parts."""
        wrappers = self.containers.wrappers
        try:
            parts = parts_of(t) if supported(t) else None
            if parts is None or t in wrappers:
                return parts is None or not wrappers.changed(t, parts)
            wrappers.note(t, parts)
        except NotTakenApart:
            return True
        self._guard_methods(type(t))
        node = self.node(t)
        for name, inner in zip(parts.names, parts.tensors, strict=True):
            if inner not in self.sources:
                self.recorder.bind_part(inner, node, getattr, name)
            if is_wrapper_class(type(inner)):
                self.note_result(inner)
        return True

    def _put_together(self, t: Tensor, parts: Parts) -> None:
        """Adds a node that puts ``t`` together, a tensor that the code has made from others."""
        cls = type(t)
        values = constants_of(t, parts)
        if values is None or any([v in self.deferred.texts for v in values]):
            raise NotForGraph(f"a tensor of class {cls.__name__}, made in the captured code, with a context that may change")
        for v in values:
            if self.deferred.numbers:
                self.deferred.settle(v)
        self._guard_methods(cls)
        self.recorder.record("call_function", PutTogether(cls, parts), (self.to_fx(t.shape), self.to_fx(t.stride()), *map(self.to_fx, parts.tensors)), {}, t)

    def _check_parts(self, t: Tensor) -> None:
        """Checks that an operator may get a tensor of a wrapper subclass: its class follows the protocol, and the code has not changed its parts."""
        cls, wrappers = type(t), self.containers.wrappers
        if cls in self.classes.local:
            raise NotForGraph(f"a tensor of class {cls.__name__}, which each call creates")
        if not supported(t):
            raise NotForGraph(f"a tensor of class {cls.__name__} that is nested or has symbolic sizes")
        if t not in wrappers and holds_masks(t):
            raise NotForGraph(f"a {cls.__name__} from before the segment, whose placements hold a mask")
        if torch.is_grad_enabled() and wrappers.is_leaf(t):
            raise NotForGraph(f"a {cls.__name__}, made in the captured code, with which a history begins")
        try:
            parts = parts_of(t)
            if t not in wrappers:
                wrappers.note(t, parts)
                if wrappers.making(t) is None:
                    raise NotForGraph(f"a tensor of class {cls.__name__} of unknown parts")
                self._put_together(t, parts)
        except NotTakenApart as e:
            raise NotForGraph(str(e)) from None
        if wrappers.changed(t, parts):
            raise NotForGraph(f"a tensor of class {cls.__name__} whose inner tensors or context the captured code has replaced")

    def _load_parts(self, v: Any, src: Source) -> None:
        """Guards the items of a tuple that is read with its numbers, after an earlier read has put symbols in their place."""
        for part, item in self._items(v, src):
            self.load(part, item)

    def read(self, v: Any, src: Source) -> Any:
        """Registers a value that the code continues with; returns a symbol instead of a number that may vary."""
        if self.symbols is not None and type(v) in LAZY:
            number = self.symbols.number(v, src)
            if number is not None:
                return number
        elif self.symbols is not None and type(v) in (tuple, torch.Size) and self.symbols.varying.found:
            return self._read_tuple(v, src)
        return v if type(v) in DEFERRED and self._put_off(v, src) else self.load(v, src)

    def _put_off(self, v: Any, src: Source) -> bool:
        """Defers the guard on a number that no symbol stands for; returns False if it is guarded, or has another source."""
        known = self.deferred.numbers.get(v)
        if known is not src and (known is not None or src.checked):
            return False
        self.deferred.put_off(v, src)
        return True

    def _read_tuple(self, v: tuple, src: Source) -> tuple:
        """Returns the tuple or ``torch.Size``, or a copy of it in which symbols replace the numbers that vary."""
        guards = self.guards
        found = self.deferred.tuples.get(v, self.deferred.copies.get(src.reg))
        if found is None and not src.checked and v not in self.sources:
            items = self._items(v, src)
            if any([self._varies(x, part) for x, part in items]):
                self.check_type(src, type(v))
                guards.check(src, "len", len(v))
                self.adopt(v, src)
                found = self.deferred.tuples[v] = type(v)([self.read(x, part) for x, part in items])
                self.adopt(found, src)
                self.deferred.copies[src.reg] = found
                return found
        return self.load(v if found is None else found, src)

    def _items(self, v: tuple, src: Source) -> list[tuple[Any, Source]]:
        return [(x, self.guards.access(src, "index", i, x)) for i, x in enumerate(v)]

    def _varies(self, v: Any, src: Source) -> bool:
        """Returns whether ``v`` is a number that varies, or a tuple that holds one."""
        if type(v) in LAZY:
            return self.symbols.varying.number(src, v)
        return type(v) in (tuple, torch.Size) and any([self._varies(x, part) for x, part in self._items(v, src)])

    def load_members(self, v: Any, src: Source, members: Iterable[Any]) -> None:
        """Loads the members of ``v`` that these C descriptors read, without asking its class."""
        for descr in members:
            value = descr.__get__(v)
            self.load(value, self.guards.access(src, "member", descr, value))

    def load_partial(self, fn: functools.partial) -> None:
        """Guards the contents of a ``functools.partial`` that is about to be read."""
        src = self.sources.get(fn)
        if src is not None:
            self.load_members(fn, src, PARTIAL)
            self.expand(PARTIAL[2].__get__(fn))

    def fault(self, text: str) -> None:
        """Reports a value without a source, which is an internal error; nothing captured in this segment is kept."""
        self.guards.interp.fail("FL901", text, True)

    def adopt(self, v: Any, src: Source) -> None:
        """Makes ``src`` the source of ``v``, and keeps ``v`` alive."""
        self.sources[v] = src

    def forget(self) -> None:
        """Drops all references to live objects after the segment is written: eager code runs next, and the user's dropped objects must die."""
        self.recorder.forget()
        self.recorder.inputs.clear()
        parts = (self.deferred, self.namespaces, self.containers, self.failures, self.functions, self.classes)
        for held in (self.sources, self.kept, *parts, self.made):
            held.clear()
        self.mutations = MutationLog()

    def pin(self, v: Any, name: str) -> Source:
        src = self.sources.get(v)
        if src is None:
            src = self.guards.pin(v, name)
            self.adopt(v, src)
            if is_users_class(type(v)) and not is_a(v, type) and v is not self.guards.interp.run_frame:
                # The program keeps the object alive, but its ``__class__`` can be assigned. In the place of fineline's own object, which calls
                # functions for a region, the program of another region has another one.
                self.guards.check(src, "type", type(v))
        elif src.op != "pin" and v not in self.classes.local:
            self.guards.check(src, "is", v)
        return src

    def instance(self, v: Any, name: str) -> None:
        """Registers the object that the region's calls call: an instance of a class, or a function."""
        src = self.guards.instance(v, name)
        self.adopt(v, src)
        if not is_a(v, types.FunctionType):
            self.guards.check(src, "type", type(v))

    def check_type(self, src: Source, t: type) -> None:
        """Guards that the value of ``src`` has the type ``t``."""
        if self.classes.given is not None and t not in self.classes.met:
            self.classes.meet(t, src)
        if t in self.classes.local:
            self.load(t, self.guards.access(src, "member", CLASS_OF, t))
        else:
            self.guards.check(src, "type", t)

    def _recreated(self, t: type, src: Source) -> bool:
        """Returns whether each call creates its own class for ``t``, the type of the value of ``src``."""
        if self.classes.given is not None:
            self.classes.meet(t, src)
        return t in self.classes.local

    def fresh(self, v: Any) -> Any:
        """Notes a mutable object as created in this segment; returns the object."""
        self.made.add(v)
        return v

    def note_class(self, cls: type, make: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        """Notes a call in this segment that has made a class, or changed one that was made in it."""
        self.classes.note(cls, (make, args, kwargs), lambda v: v in self.made or v in self.sources)
        # A write to one of the dicts could not be repeated.
        self.made.update([cls, *[part for part, _ in self.classes.made[cls].parts.items() if type(part) is not dict]])

    # -- instance dicts ----------------------------------------------------------------------------------------------
    def dict_source(self, obj: Any, d: dict) -> Source | None:
        """Returns the source of an existing object's ``__dict__``; None if the object was made here."""
        src = self.sources.get(d)
        if src is None:
            owner = self.sources.get(obj)
            if owner is None and is_a(obj, types.ModuleType):
                owner = self.pin(obj, str(d.get("__name__", "module")))
            elif owner is None and is_a(obj, enum.Enum) and obj not in self.made:
                # Members, and combined flags, live as long as their class.
                owner = self.pin(obj, type(obj).__name__)
            if owner is None:
                if obj not in self.made and self.active and not (is_a(obj, Tensor) and self.recorder.known(obj)):
                    self.fault(f"an object of type {type(obj).__name__} of unknown origin is read")
                return None
            src = self.guards.access(owner, "dict", None, d)
            self.adopt(d, src)
        elif (src.op != "dict" or src.parent is None or src.parent.value is not obj) and not is_a(obj, types.ModuleType):
            owner = self.sources.get(obj)
            if owner is not None:
                self.guards.check(self.guards.access(owner, "dict", None, d), "same", src.reg)
        return src

    def expose(self, d: dict) -> None:
        """Notes that code gets the dict of an instance itself."""

    def writable(self, obj: Any, d: dict, src: Source) -> dict:
        """Returns the dict of ``obj``, from before the segment, into which the capture writes an attribute."""
        return d

    def read_key(self, d: dict, src: Source | None, key: Any, value: Any) -> Any:
        """Returns a value just read from dict ``d`` under ``key``."""
        if src is None or d in self.containers.expanded or (type(key) is int and self.is_ordered(d)):
            return value
        if d in self.mutations.written and self.mutations.is_dirty(d, key):
            return value
        return self.read(value, self.guards.access(src, "key", key, value))

    def read_absent(self, d: dict, src: Source | None, key: Any) -> None:
        """Guards that ``key`` is absent from ``d``."""
        if src is None or d in self.containers.expanded or (d in self.mutations.written and self.mutations.is_dirty(d, key)):
            return
        if type(key) is int and self.is_ordered(d):
            return
        self.guards.check(src, "absent", key, (type(key), key) if is_a(key, (str, int, float)) else id(key))

    def guard_presence(self, d: dict, src: Source, key: str) -> None:
        """Guards whether ``key``, which is about to be deleted, existed before: this decides the position of a later write."""
        before = self.mutations.before(d)
        if d in self.containers.expanded:
            return
        if key in before:
            self.guards.access(src, "key", key, before[key])
        else:
            self.guards.check(src, "absent", key, (type(key), key))

    # -- containers ----------------------------------------------------------------------------------------------------
    def read_again(self) -> Guarded:
        """Makes the code that runs next meet the log of writes in all that it reads, even what was read before; returns the guarded containers."""
        self.namespaces.global_values.clear()
        for name in self.mutations.class_attributes:
            for info in self.namespaces.types.values():
                info.forget(name)
        return self.containers.guard_again()

    def expand(self, obj: Any, deep: bool = False, ordered: bool = True, within: tuple[int, ...] = ()) -> None:
        """Guards a whole container with the contents before this segment's writes, and its items; for an ``ordered`` set, the order too.

        For an iterator, guards the lists that it iterates over.
        """
        if type(obj) in LIST_READERS:
            for it in list_iterators(obj):
                self.expand(iterator_state(it)[1][0], deep, ordered, within)
            return
        if self.mutations.hooks.of_modules and type(obj) is OrderedDict and not self._is_in_modules() and self.mutations.hooks.show(obj):
            raise NotForGraph("a dict with the number of a hook that the graph registers")
        src = self.sources.get(obj)
        if src is not None and ordered and is_a(obj, (set, frozenset)) and len(obj) > 1:
            elements = tuple(self.mutations.before(obj))
            self.guards.check(src, "predicate", (SameOrder(elements), "gives its elements in the same order"), "order")
        if src is None or obj in self.containers.expanded or self.is_ordered(obj):
            if deep:
                self._expand_items(obj, within)
            return
        guards, t = self.guards, type(obj)
        before = self.mutations.before(obj)
        if is_a(obj, dict):
            keys = OrderedDict.keys(before) if is_a(before, OrderedDict) else dict.keys(before)
            if not all([hashes_plainly(k) for k in keys]):
                raise NotForGraph("a dict with keys that have their own __hash__ or __eq__")
            guards.check(src, "keys", tuple(keys))
            for k in list(dict.keys(before)):
                v = dict.__getitem__(before, k)
                if not is_a(k, (str, int, float, bool, type(None), bytes)):
                    self._load_key(k)
                self._load_item(obj, k, v, guards.access(src, "key", k, v))
        elif is_a(obj, list):
            guards.check(src, "len", list.__len__(before))
            for n, v in enumerate(list(list.__iter__(before))):
                self._load_item(obj, n, v, guards.access(src, "index", n, v))
        elif is_a(obj, deque):
            guards.check(src, "predicate", (DequeLength(len(before)), f"has {len(before)} items"), "deque length")
            for n, v in enumerate(list(before)):
                self._load_item(obj, n, v, guards.access(src, "member", DequeItem(n), v))
        elif is_a(obj, (set, frozenset)):
            if not all([is_value(v) or (hashes_plainly(v) and type(v).__eq__ is object.__eq__) for v in before]):
                raise NotForGraph("a set of objects that existed before the call")
            guards.check(src, "set_eq", frozenset(before))
            for v in before:
                self._load_key(v)
        elif is_a(obj, bytearray):
            guards.check(src, "predicate", (SameBytes(bytes(before)), f"== {bytes(before)!r:.40}"), "bytes")
        # Without a class's namespace: code reads single names from it, and it holds descriptors that are created with the class.
        elif t in WINDOWS and is_a(shown_by.__get__(obj, t), dict) and not (t is types.MappingProxyType and "__module__" in obj):
            shown = shown_by.__get__(obj, t)
            self.load(shown, guards.access(src, "member", shown_by, shown))
            self.expand(shown)
        elif deep and is_a(obj, BaseException) and not has_hidden_state(obj):
            guard_arguments(self, obj, src)
        elif not is_a(obj, tuple):
            if t in WINDOWS or (deep and has_hidden_state(obj)):
                raise NotForGraph(f"a {t.__name__} that existed before the call")
            return
        self.containers.expanded.add(obj)
        if deep:
            self._expand_items(obj, within)

    def is_ordered(self, hooks: Any) -> bool:
        """Returns whether this is a dict of hooks whose order is guarded, which is all that PyTorch's own code, which reads it now, can see."""
        return hooks in self.containers.ordered and self._is_in_modules()

    def _is_in_modules(self) -> bool:
        frame = self.guards.interp.frame
        return frame is not None and is_of_modules(frame.info.code)

    def _load_item(self, obj: Any, key: Any, v: Any, src: Source) -> None:
        """Loads an item of a container that C is about to read as a whole; a symbol replaces an item that varies in the container."""
        symbols = self.symbols
        if type(v) in LAZY and is_a(obj, dict) and obj in self.mutations.written and self.mutations.is_dirty(obj, key):
            # The old number was overwritten: no code can read it any more.
            return
        if symbols is None or not symbols.varying.found or is_a(self.recorder, Part) or not self.mutations.replaceable(obj, key, v):
            self.load(v, src)
        elif (value := self.read(v, src)) is not v:
            self.mutations.replace(obj, key, value)

    def _load_key(self, k: Any) -> None:
        """Loads a key that is an object: the ``keys`` check guards its identity, and its source is a pin."""
        if not is_value(k) and k in self.sources:
            # Other sources of the key must still lead to this object.
            identify(self, k)
        elif not is_value(k):
            self.load(k, self.guards.pin(k, "key"))

    def _expand_items(self, obj: Any, within: tuple[int, ...]) -> None:
        """Expands the items of a container. ``within``: the containers around it, because one may contain itself."""
        if is_a(obj, (dict, list, tuple, set, frozenset, deque)) and id(obj) not in within:
            for v in list(dict.values(obj) if is_a(obj, dict) else obj):
                if self.deferred.numbers:
                    self.deferred.settle(v)
                self.expand(v, True, True, (*within, id(obj)))

    # -- tensors ---------------------------------------------------------------------------------------------------
    def node(self, t: Tensor) -> Any:
        """Returns the FX node that stands for ``t``."""
        node = self.recorder.find(t)
        if node is None:
            src = self.sources.get(t)
            if src is None:
                self.fault(f"a tensor of unknown origin, shape {tuple(t.shape)}, reached an operator")
                return None
            if self.symbols is not None and t in self.symbols.unsized:
                raise NotForGraph(f"a {type(t).__name__} of layout {t.layout} whose sizes vary")
            if (owner := self.containers.wrappers.owner(t)) is not None:
                # With an inner tensor as a further input, compilers would not see that both share memory.
                self.recorder.bind_part(t, self.node(owner[0]), getattr, owner[1])
                return self.recorder.find(t)
            node = self.recorder.placeholder(t, src.key if is_a(src.key, str) and src.key.isidentifier() else "arg", src)
        return node

    def to_fx(self, a: Any) -> Any:
        """Returns an operator's argument as FX carries it."""
        t = type(a)
        if t in PLAIN_TENSORS:
            return self.node(a)
        if t in FX_CONSTANTS and a not in self.deferred.texts:
            if self.deferred.numbers:
                self.deferred.settle(a)
            return a if (t is not float or a == a) and t is not complex else self.recorder.literal(a)
        if t is tuple or t is torch.Size:
            return tuple([self.to_fx(x) for x in a])
        if t in SYMBOLIC and self.symbols is not None:
            return self.symbols.node(a)
        if t is list:
            self.expand(a)
            return [self.to_fx(x) for x in a]
        if t is slice:
            return slice(self.to_fx(a.start), self.to_fx(a.stop), self.to_fx(a.step))
        if is_a(a, Tensor):
            switched_off = torch_function_state() != "ENABLED" and t.__torch_dispatch__ is torch._C._disabled_torch_dispatch_impl
            if switched_off or taken_as_it_is(t):
                for name in ("__torch_dispatch__",) if switched_off else ("__torch_function__", "__torch_dispatch__"):
                    holder = find(self, t, name) if t in self.classes.local else t
                    if holder is not None:
                        self.guards.check(self.guards.type_attr(holder, name, getattr(holder, name)), "is", getattr(holder, name))
                return self.node(a)
            overrides = t.__torch_function__ is not torch._C._disabled_torch_function_impl and not in_graphs(t)
            if is_wrapper_class(t) and not (overrides and torch_function_state() == "ENABLED"):
                self._check_parts(a)
                self.recorder.traits.hides_operators |= overrides
                return self.node(a)
            lacking = [name for name in ("__tensor_flatten__", "__tensor_unflatten__") if not callable(getattr(t, name, None))]
            if lacking and t.__torch_dispatch__ is not torch._C._disabled_torch_dispatch_impl:
                raise NotForGraph(f"a tensor of class {t.__name__}, which computes operators itself and has no {' and no '.join(lacking)}")
            raise NotForGraph(f"a tensor of class {t.__name__}, which overrides operators")
        if t is dict:
            self.expand(a)
            return {k: self.to_fx(x) for k, x in a.items()}
        if is_a(a, tuple):
            return tuple([self.to_fx(x) for x in a])
        if is_a(a, range):
            return list(a)
        if is_a(a, enum.Flag) and type(a).__members__.get(str(a.name)) is not a:
            # FX writes members by name, but a combined flag has none.
            if is_a(a, int):
                return int(a)
        elif is_a(a, enum.Enum) and a not in self.classes.local:
            return a
        if t in NUMBERS:
            if self.deferred.numbers:
                self.deferred.settle(a)
            return self.to_fx(a.item())
        if t is TENSOR_TYPE:
            return f"{a.__module__}.{a.__name__}"
        if t is type and a in DTYPES:
            return DTYPES[a]
        if is_a(a, (int, float)):
            # Operators accept it as its base type.
            return PLAIN_VALUE[_base(t)](a)
        raise NotForGraph(f"an argument of type {t.__module__}.{t.__qualname__}")


def _base(t: type) -> type:
    return next(b for b in PLAIN_VALUE if issubclass(t, b))
