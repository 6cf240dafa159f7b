"""Classes that each call of a region makes anew: which they are, and how a segment learns of them."""

from __future__ import annotations

import enum
import weakref
from abc import ABCMeta
from collections import namedtuple
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
)
from typing import Any, Protocol
from weakref import WeakValueDictionary

from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from fineline.guards.source import Source, root_of
from fineline.identity import AddressSet
from fineline.kinds import is_a

CLASS_MRO = type.__dict__["__mro__"]
HEAP_TYPE = 1 << 9
# Metaclasses of which guards see all that matters of a class, or that something else guards.
PLAIN_METACLASSES = (type, ABCMeta, enum.EnumMeta, type(Protocol), type(Function), type(Tensor), type(Parameter))
TYPE_DICT = type.__dict__["__dict__"]
# The descriptors that a class gets of its own for slots, and for the dict and the weak references of its instances.
CLASS_MEMBERS = (MemberDescriptorType, GetSetDescriptorType)


class TupleIndex:
    """The index that a named tuple's descriptor reads, as a member."""

    __name__ = "index"

    def __get__(self, descr: Any, cls: Any = None) -> Any:
        return descr.__reduce__()[1][0]


TUPLE_GETTER: Any = type(namedtuple("Pair", "first second").__dict__["first"])
# What holds functions, or an index: they are made anew with the class.
HOLDERS = {
    property: tuple([property.__dict__[name] for name in ("fget", "fset", "fdel")]),
    staticmethod: (staticmethod.__dict__["__func__"],),
    classmethod: (classmethod.__dict__["__func__"],),
    TUPLE_GETTER: (TupleIndex(),),
}
# The types of C's whose descriptors are guarded by what they hold; and those of which guards compare the identity.
READ = frozenset({FunctionType, *HOLDERS})
BY_IDENTITY = (type, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)


class LocalClasses:
    """The classes that the calls of one region have made; held weakly, and by id: a metaclass may hash its own way."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, type] = WeakValueDictionary()
        # Those of them that an eager call has made.
        self._given: WeakValueDictionary[int, type] = WeakValueDictionary()
        # By module and name: the first class that an eager call has given; the names of which there have been others.
        self._first: dict[tuple, weakref.ref[type]] = {}
        self._made_again: set[tuple] = set()
        # Most regions make none, and every value is asked about.
        self._any = False

    def __contains__(self, cls: Any) -> bool:
        """Returns whether ``cls`` is one of these classes, or a member of an enum among them."""
        if not self._any:
            return False
        if is_a(cls, enum.Enum):
            cls = type(cls)
        return self._known.get(id(cls)) is cls

    def add(self, cls: Any) -> Any:
        """Notes a class; -> the class. A metaclass may make something else."""
        if is_a(cls, type):
            self._known[id(cls)] = cls
            self._any = True
        return cls

    def meet(self, cls: type, given: bool) -> None:
        """Notes a class after a graph break, and its bases, if an eager call has just ``given`` it.

        The first class of a name is known by identity. Another one of that name tells that the eager call makes them anew.
        """
        if not (given or self._any or self._made_again):
            return
        heap = [k for k in CLASS_MRO.__get__(cls) if k.__flags__ & HEAP_TYPE]
        anew = [k for k in heap if k in self or (self._repeats(k) if given else _name(k) in self._made_again)]
        if cls in anew and all([_is_read_by_content(k) for k in anew]):
            for k in anew:
                self.add(k)
                self._given[id(k)] = k

    def _repeats(self, cls: type) -> bool:
        name = _name(cls)
        if self._first.setdefault(name, weakref.ref(cls))() is cls:
            return False
        self._made_again.add(name)
        return True

    def is_given(self, cls: Any) -> bool:
        """Returns whether ``cls`` is a class that an eager call makes anew."""
        return self._given.get(id(cls)) is cls

    @property
    def any_given(self) -> bool:
        return bool(self._given)

    def __call__(self, make: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes a class natively, with what its metaclass and its bases have to say."""
        return self.add(make(*args, **kwargs))


def _name(cls: type) -> tuple:
    return TYPE_DICT.__get__(cls).get("__module__"), cls.__qualname__


def _is_read_by_content(cls: type) -> bool:
    """Returns whether guards see all that tells ``cls`` from another class of its name: its metaclass, and C descriptors, keep nothing else."""
    if type(cls) not in PLAIN_METACLASSES:
        return False
    for name, v in TYPE_DICT.__get__(cls).items():
        t = type(v)
        if t in CLASS_MEMBERS:
            if v.__objclass__ is not cls or v.__name__ != name:
                return False
        elif not t.__flags__ & HEAP_TYPE and t not in READ and hasattr(t, "__get__") and not is_a(v, BY_IDENTITY):
            return False
    return True


class SegmentClasses:
    """The classes made anew, as one segment meets them."""

    __slots__ = ("given", "local", "met")

    def __init__(self, local: LocalClasses) -> None:
        # Those that the calls of the region have made.
        self.local = local
        # After a graph break: the root that an eager call gave. The classes that have been met since; guards hold them.
        self.given: Source | None = None
        self.met = AddressSet()

    def meet(self, cls: type, src: Source) -> None:
        """Decides how guards know a class that is first met after a graph break: by what it holds, if an eager call makes it anew each time."""
        if cls in self.met:
            return
        self.met.add(cls)
        if type(cls) in PLAIN_METACLASSES and cls.__flags__ & HEAP_TYPE:
            root = root_of(src)
            if root.op == "root" and not self.local.is_given(cls):
                self.local.meet(cls, root is self.given)

    def clear(self) -> None:
        self.met.clear()
        self.given = None
