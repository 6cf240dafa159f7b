"""Guards on what is no value that is loaded: which objects are one, what a class says of itself, what a query answers."""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MappingProxyType
from typing import Any

from torch import Tensor

from fineline.guards.evaluate import same_constant
from fineline.kinds import is_a

CLASS_MRO = type.__dict__["__mro__"]
HEAP_TYPE = 1 << 9
OBJECT_EQ = object.__eq__
F_CODE = FunctionType.__dict__["__code__"]


def identify(cap: Any, obj: Any) -> None:
    """``obj`` is looked up by identity among others that the program may not know: it must be this very object."""
    src = cap.sources.get(id(obj))
    if src is not None and src.op != "pin":
        cap.guards.check(src, "is", obj)


def known_code(cap: Any, fn: FunctionType) -> None:
    """What becomes of a call of ``fn`` was decided for this function, or another one made by the same ``def``."""
    src = cap.sources.get(id(fn))
    if src is not None and src.op != "pin" and "function" not in src.checked:
        cap.guards.check(cap.guards.access(src, "member", F_CODE, fn.__code__), "is", fn.__code__)


def keep_apart(cap: Any, obj: Any, among: Any) -> None:
    """``obj`` is looked up by identity in a container made here: which of its keys it is must stay so."""
    src = cap.sources.get(id(obj))
    if src is None or src.op == "pin":
        return
    others = [cap.sources.get(id(k)) for k in among if k is not obj]
    regs = tuple([s.reg for s in others if s is not None and s.op != "pin" and s is not src])
    if regs:
        cap.guards.check(src, "distinct", regs, ("apart", regs))


def tell_apart(cap: Any, values: Any) -> None:
    """C compares what ``values`` hold: those compared by identity must stay different objects."""
    regs: dict[int, int] = {}
    for obj in _leaves(values, 0):
        src = cap.sources.get(id(obj))
        if src is not None and src.reg not in regs.values():
            if regs:
                others = tuple(regs.values())
                cap.guards.check(src, "distinct", others, others)
            regs[id(obj)] = src.reg


def tell_from(cap: Any, obj: Any, among: Any) -> None:
    """C compares ``obj`` with each of ``among``, and these not with each other."""
    mine, others = list(_leaves((obj,), 0)), list(_leaves(among, 0))
    if not others:
        return
    for one in mine:
        keep_apart(cap, one, others)


def _leaves(values: Any, depth: int) -> Iterator[Any]:
    """The objects in containers whose ``==`` is ``is``."""
    for v in values:
        t = type(v)
        if t in (list, tuple, set, frozenset, deque):
            if depth < 8:
                yield from _leaves(v, depth + 1)
        elif t in (dict, OrderedDict, MappingProxyType):
            if depth < 8:
                yield from _leaves((*v.keys(), *v.values()), depth + 1)
        elif t.__flags__ & HEAP_TYPE and t.__eq__ is OBJECT_EQ and not is_a(v, (type, enum.Enum, Tensor)):
            yield v


def guard_mro(cap: Any, cls: type) -> None:
    """An answer follows from the bases of a class."""
    if cls.__flags__ & HEAP_TYPE and id(cls) not in cap.made:
        src = cap.sources.get(id(cls)) if cls in cap.classes else None
        src = src or cap.guards.pin(cls, cls.__qualname__)
        mro = CLASS_MRO.__get__(cls)
        # By its items: assigning __bases__ there and back gives another tuple.
        cap.load(mro, cap.guards.access(src, "member", CLASS_MRO, mro))


def guard_subclass(cap: Any, cls: type, classes: Any, answer: bool) -> None:
    """An abstract class was asked whether ``cls`` is one of its own: a later ``register`` may change the answer."""
    src = cap.guards.pin(classes, classes.__qualname__)
    text = f"{'is' if answer else 'is no'} base of {cls.__qualname__}"
    cap.guards.check(src, "predicate", (partial(_is_subclass, cls, answer), text), ("subclass", id(cls)))


def guard_answer(cap: Any, fn: Callable, args: tuple, kwargs: dict, answer: Any) -> None:
    """A function that reads PyTorch's state gave ``answer``, and no other guard covers that state."""
    src = cap.guards.pin(fn, getattr(fn, "__name__", "query"))
    ident = ("answer", args, tuple(kwargs.items()))
    cap.guards.check(src, "predicate", (partial(_answers, args, kwargs, answer), f"gives {answer!r}"), ident)


def _is_subclass(cls: type, answer: bool, base: Any) -> bool:
    return issubclass(cls, base) is answer


def is_instance(classes: Any, answer: bool, obj: Any) -> bool:
    return isinstance(obj, classes) is answer


def _answers(args: tuple, kwargs: dict, answer: Any, fn: Any) -> bool:
    return same_constant(fn(*args, **kwargs), answer)


class BaseEquals:
    """Whether a value of a subclass of int, str, ... has the base value seen at capture."""

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
    """Whether a set gives its elements in the order seen at capture: it depends on the set's past."""

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


def member_is_empty(descr: Any, obj: Any) -> bool:
    """Whether reading a slot still fails."""
    try:
        descr.__get__(obj, type(obj))
    except AttributeError:
        return True
    return False
