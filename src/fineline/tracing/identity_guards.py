"""Guards that are not on a loaded value: object identity, class attributes, and results of state queries."""

from __future__ import annotations

import enum
import gc
import operator
import re
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend

from fineline.guards.evaluate import same_constant
from fineline.guards.source import Source
from fineline.guards.texts import value_text
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.numpy_support import np
from fineline.tracing.guarded_trace import GuardedTrace
from fineline.tracing.recreated_classes import CLASS_MRO

OBJECT_EQ = object.__eq__
F_CODE = FunctionType.__dict__["__code__"]
REFERENT = weakref.ref.__call__
METHOD = (MethodType.__dict__["__self__"], MethodType.__dict__["__func__"])
BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)
ARGUMENTS = BaseException.__dict__["args"]
VIEWS = frozenset(type(view) for d in (dict[str, int](), OrderedDict[str, int]()) for view in (d.keys(), d.values(), d.items()))
HOLDERS = VIEWS | {list, set, frozenset, deque}


# Types whose parts are guarded when C reads them, or cannot change.
OPEN = (
    *(type, ModuleType, CodeType, FunctionType, *BOUND, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType),
    *(GetSetDescriptorType, MemberDescriptorType, CellType, GenericAlias, UnionType, MappingProxyType, enum.Enum, re.Pattern, slice, range),
    *(int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset, deque, weakref.ref),
    *(operator.itemgetter, operator.attrgetter, operator.methodcaller, partial),
    *(Tensor, torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo, SDPBackend, np.generic),
)  # fmt: skip


def has_hidden_state(obj: Any) -> bool:
    """Returns whether ``obj`` holds C state that no guard can read: a file's position, an array's numbers, an exception's text."""
    t = type(obj)
    if is_a(obj, OPEN) or (is_a(obj, BaseException) and _shows_arguments(t)):
        return False
    more: int = t.__basicsize__ - object.__basicsize__ - 8 * ((t.__dictoffset__ > 0) + (t.__weakrefoffset__ > 0))
    # The slots are counted last: few classes have any, and the search goes through all names of a class.
    return more > 0 and more > 8 * sum([type(d) is MemberDescriptorType for k in CLASS_MRO.__get__(t) for d in k.__dict__.values()])


def _shows_arguments(t: type) -> bool:
    """Returns whether an exception's texts depend only on its arguments."""
    return t.__str__ in (BaseException.__str__, KeyError.__str__) and t.__repr__ is BaseException.__repr__


def guard_arguments(trace: GuardedTrace, error: BaseException, src: Source) -> None:
    """Guards the arguments of an exception that existed before the segment, because C is going to read them."""
    trace.load_members(error, src, (ARGUMENTS,))
    trace.expand(ARGUMENTS.__get__(error), True)


def identify(trace: GuardedTrace, obj: Any) -> None:
    """Guards that ``obj`` is this object, because it is looked up by identity among objects that the program may not know."""
    src = trace.sources.get(obj)
    if src is not None and src.op != "pin":
        trace.guards.check(src, "is", obj)


def known_code(trace: GuardedTrace, fn: FunctionType) -> None:
    """Guards that ``fn`` is made by this ``def`` statement, because the treatment of its call depends on its code."""
    src = trace.sources.get(fn)
    if src is not None and src.op != "pin" and "function" not in src.checked:
        trace.guards.check(trace.guards.access(src, "member", F_CODE, fn.__code__), "is", fn.__code__)


def parts(trace: GuardedTrace, obj: Any) -> tuple:
    """Returns the objects in ``obj`` that ``==`` compares by identity. A bound method is new at each read: its function and object count.

    Of a weak reference that the code has made, the object that it refers to counts.
    """
    t = type(obj)
    if t is weakref.ref and obj not in trace.sources:
        return (REFERENT(obj),)
    if t is MethodType:
        bound = tuple([d.__get__(obj, t) for d in METHOD])
        src = trace.sources.get(obj)
        if src is not None:
            trace.load_members(obj, src, METHOD)
        return bound
    # A load of these methods has loaded the object that they bind.
    return (obj.__self__,) if t in (BuiltinFunctionType, MethodWrapperType) else (obj,)


def guard_identity(trace: GuardedTrace, a: Any, b: Any) -> None:
    """Guards whether two objects are the same, because the code has compared their identity."""
    if trace.symbols is not None:
        trace.symbols.inlined.keep(a)
        trace.symbols.inlined.keep(b)
    if a is b:
        return
    sa, sb = trace.sources.get(a), trace.sources.get(b)
    if type(a) is type(b) is weakref.ref and (sa is None) is not (sb is None):
        # The one made by the code is the other one in a call in which that refers to the same object.
        src, ref = (sa, a) if sb is None else (sb, b)
        assert src is not None
        guard_reference(trace, ref, src)
    if sa is not None and sb is not None and type(a) is type(b):
        trace.guards.distinct((sb, sa))


def guard_reference(trace: GuardedTrace, ref: weakref.ref, src: Source) -> None:
    """Guards which object ``ref`` refers to, and whether it has a callback: an object has one plain reference without a callback at most."""
    trace.guards.check(src, "predicate", (partial(same_target, ref if REFERENT(ref) is not None else None), "refers to the same object"), "target")
    trace.guards.check(src, "predicate", (partial(_has_callback, ref.__callback__ is not None), "has a callback, or none"), "callback")


def same_target(ref: Any, other: Any) -> bool:
    return REFERENT(other) is (None if ref is None else REFERENT(ref))


def _has_callback(answer: bool, ref: weakref.ref) -> bool:
    return (ref.__callback__ is not None) is answer


def guard_distinct(trace: GuardedTrace, values: Any, hashed: bool = False) -> None:
    """Guards that the parts of ``values`` stay different objects if C compares them by identity, or looks them up if ``hashed``."""
    found = [trace.sources.get(obj) for obj in leaves(trace, values, hashed)]
    trace.guards.distinct({src.reg: src for src in found if src is not None}.values())


def guard_distinct_from(trace: GuardedTrace, obj: Any, among: Any) -> None:
    """Guards that ``obj`` differs from each of ``among``, because C compares it with these, but not these with each other."""
    mine, others = list(leaves(trace, (obj,))), list(leaves(trace, among))
    if not others:
        return
    among = IdentitySet([part for other in others for part in parts(trace, other)])
    for src in [trace.sources.get(part) for one in mine for part in parts(trace, one)]:
        if src is None:
            continue
        found = [s for s in map(trace.sources.get, among) if s is not None and s is not src]
        # The program keeps both objects if both are constants: they stay distinct without a guard.
        trace.guards.distinct((src,), [s for s in found if not (s.op == src.op == "pin")])


def leaves(trace: GuardedTrace, values: Any, hashed: bool = False, depth: int = 0) -> Iterator[Any]:
    """Yields the objects in containers that ``==`` compares by identity, and if ``hashed`` also tensors, which hash by identity."""
    for v in values:
        t = type(v)
        if t in HOLDERS or is_a(v, tuple):
            if depth < 8:
                yield from leaves(trace, tuple.__iter__(v) if is_a(v, tuple) else v, hashed, depth + 1)
        elif t in (dict, OrderedDict, MappingProxyType):
            if depth < 8:
                yield from leaves(trace, (*v.keys(), *v.values()), hashed, depth + 1)
        elif t is slice:
            yield from leaves(trace, (v.start, v.stop, v.step), hashed, depth + 1)
        elif t in BOUND:
            yield from parts(trace, v)
        elif (t.__eq__ is OBJECT_EQ and not is_a(v, (type, enum.Enum, Tensor))) or (hashed and is_a(v, Tensor)):
            yield v


def guard_mro(trace: GuardedTrace, cls: type) -> None:
    """Guards the MRO of a class, because an answer follows from its bases."""
    if is_users_class(cls) and cls not in trace.classes.made:
        src = trace.sources.get(cls) if cls in trace.classes.local else None
        src = src or trace.guards.pin(cls, cls.__qualname__)
        # Guards the items: assigning to ``__bases__`` and back makes another tuple.
        trace.load_members(cls, src, (CLASS_MRO,))


def guard_subclass(trace: GuardedTrace, cls: type, classes: Any, answer: bool) -> None:
    """Guards the answer of an abstract class to whether ``cls`` is its subclass: a later ``register`` may change it."""
    made = trace.sources.get(cls) if cls in trace.classes.local and classes not in trace.classes.local else None
    if made is not None and made.op != "pin":
        text = f"{'is a' if answer else 'is not a'} subclass of {classes.__qualname__}"
        trace.guards.check(made, "predicate", (partial(_has_base, classes, answer), text), ("base", id(classes)))
        return
    src = (trace.sources.get(classes) if classes in trace.classes.local else None) or trace.guards.pin(classes, classes.__qualname__)
    text = f"{'is a' if answer else 'is not a'} base of {cls.__qualname__}"
    trace.guards.check(src, "predicate", (partial(_is_subclass, cls, answer), text), ("subclass", id(cls)))


_BY_DEVICE = IdentitySet((torch.is_autocast_enabled, torch.get_autocast_dtype))


def guard_answer(trace: GuardedTrace, fn: Callable, args: tuple, kwargs: dict, answer: Any) -> None:
    """Guards that a function that reads PyTorch's state returns ``answer``, unless the guard on ambient state covers it."""
    if fn in _BY_DEVICE and all([a in ("cpu", "cuda") for a in (*args, *kwargs.values())]):
        # The guard on ambient state covers these devices.
        return
    answer = trace.state.answer(fn, answer)
    src = trace.guards.pin(fn, getattr(fn, "__name__", "query"))
    # A tuple, because a saved program has no dicts in its guards.
    named = tuple(kwargs.items())
    trace.guards.check(src, "predicate", (partial(_answers, args, named, answer), f"gives {value_text(answer)}"), ("answer", args, named))


def _is_subclass(cls: type, answer: bool, base: Any) -> bool:
    return issubclass(cls, base) is answer


def _has_base(base: type, answer: bool, cls: type) -> bool:
    return issubclass(cls, base) is answer


def is_instance(classes: Any, answer: bool, obj: Any) -> bool:
    return isinstance(obj, classes) is answer


def _answers(args: tuple, named: tuple, answer: Any, fn: Any) -> bool:
    return same_constant(fn(*args, **dict(named)), answer)


class BaseEquals:
    """A predicate: a value of a subclass of int, str and the like has the base value seen at capture."""

    def __init__(self, value: Any) -> None:
        self.plain = PLAIN_VALUE[next(b for b in PLAIN_VALUE if is_a(value, b))]
        self.value = self.plain(value)

    def __call__(self, v: Any) -> bool:
        return same_constant(self.plain(v), self.value)


PLAIN_VALUE: dict[type, Callable] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__pos__,
    str: str.__str__,
    bytes: lambda b: bytes.__getitem__(b, slice(None)),
}


class SameOrder:
    """A predicate: a set iterates over its elements in the order seen at capture, which depends on the set's history."""

    def __init__(self, elements: Any) -> None:
        self.elements = elements

    def __call__(self, v: Any) -> bool:
        walk = set.__iter__ if is_a(v, set) else frozenset.__iter__
        return all(a is b or a == b for a, b in zip(walk(v), self.elements, strict=True))


class SameBytes:
    def __init__(self, value: bytes) -> None:
        self.value = value

    def __call__(self, v: Any) -> bool:
        return bytes(v) == self.value


class SameSubclasses:
    """A predicate: a class has the subclasses seen at capture. Holds none of them: the list tells which are alive."""

    def __init__(self, found: list[type]) -> None:
        self.found = [*map(weakref.ref, found)]

    def __call__(self, v: Any) -> bool:
        now = type.__subclasses__(v)
        return len(now) == len(self.found) and all([known() is cls for known, cls in zip(self.found, now, strict=True)])


class ShownBy:
    """Reads the dict of a mappingproxy, or of a dict's view, as a member."""

    __name__ = "shown"
    MEMBER_TEXTS = MappingProxyType({"": "the dict behind {of}"})

    def __get__(self, obj: Any, cls: type) -> Any:
        # The object refers to nothing else.
        return gc.get_referents(obj)[0]


shown_by = ShownBy()


class DequeItem:
    """Reads a deque's item as a member: guard steps index only lists and tuples."""

    MEMBER_TEXTS = MappingProxyType({"": "{of}[{at}]"})

    def __init__(self, at: int) -> None:
        self.at = at
        self.__name__ = f"item_{at}"

    def __get__(self, obj: deque, cls: type) -> Any:
        return deque.__getitem__(obj, self.at)


LIST_ITERATOR: type = type(iter([]))
REVERSED_ITERATOR: type = type(reversed([]))
OVER_LISTS = frozenset({LIST_ITERATOR, REVERSED_ITERATOR})
# Iterators over a list, and iterators that pass on the items of others unchanged.
LIST_READERS: frozenset[type] = frozenset({*OVER_LISTS, enumerate, zip})


def list_iterators(it: Any) -> list[Any]:
    """Returns the iterators over lists among ``it`` and the iterators that it reads."""
    t = type(it)
    if t in OVER_LISTS:
        return [it]
    parts = it.__reduce__()[1] if t in LIST_READERS else ()
    return [found for part in (parts[:1] if t is enumerate else parts) for found in list_iterators(part)]


class ItemFromEnd:
    """Reads a list's item as a member, by its distance from the end."""

    MEMBER_TEXTS = MappingProxyType({"": "{of}[{at}]"})

    def __init__(self, at: int) -> None:
        self.at = at
        self.__name__ = f"item_{at}"

    def __get__(self, obj: list, cls: type) -> Any:
        return list.__getitem__(obj, self.at)


class Number(property):
    """Reads the number in a tensor or array with one element as a member."""

    __name__ = "item()"


class DequeLength:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, v: Any) -> bool:
        return is_a(v, deque) and deque.__len__(v) == self.n


def member_is_empty(descr: Any, obj: Any) -> bool:
    """Returns whether reading a slot still fails: it has no value."""
    try:
        descr.__get__(obj, type(obj))
    except AttributeError:
        return True
    return False
