"""Classes that each call of a region creates for itself: which they are, and how a segment recognizes them."""

from __future__ import annotations

import enum
import weakref
from abc import ABCMeta
from collections import namedtuple
from collections.abc import Callable
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
from fineline.identity import AddressSet, IdentityMap
from fineline.kinds import is_a, is_users_class

CLASS_MRO = type.__dict__["__mro__"]
# Metaclasses whose classes guards can compare completely by content, or that another guard covers.
PLAIN_METACLASSES = (type, ABCMeta, enum.EnumMeta, type(Protocol), type(Function), type(Tensor), type(Parameter))
TYPE_DICT = type.__dict__["__dict__"]
# Descriptors that each class creates for its slots, and for the dict and the weak references of its instances.
CLASS_MEMBERS = (MemberDescriptorType, GetSetDescriptorType)


class TupleIndex:
    """Reads the index of a named tuple's descriptor as a member."""

    __name__ = "index"

    def __get__(self, descr: Any, cls: Any = None) -> Any:
        return descr.__reduce__()[1][0]


TUPLE_GETTER: Any = type(namedtuple("Pair", "first second").__dict__["first"])
# Descriptors that hold functions or an index, and are created with the class: the members that guards compare.
HOLDERS = {
    property: tuple([property.__dict__[name] for name in ("fget", "fset", "fdel")]),
    staticmethod: (staticmethod.__dict__["__func__"],),
    classmethod: (classmethod.__dict__["__func__"],),
    TUPLE_GETTER: (TupleIndex(),),
}
# What a call makes together with a class, and the dicts of a class that hold more of it.
TABLES = ("_member_map_", "__dataclass_fields__")
MADE_WITH_CLASSES = (dict, FunctionType, staticmethod, classmethod, property, TUPLE_GETTER)
# C types whose descriptors are guarded by content, and those whose identity is guarded.
READ = frozenset({FunctionType, *HOLDERS})
BY_IDENTITY = (type, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType)


class LocalClasses:
    """The classes that the calls of one region have created, in weak tables by id, because a metaclass may define its own hash."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, type] = WeakValueDictionary()
        # Those of them that an eager call created.
        self._given: WeakValueDictionary[int, type] = WeakValueDictionary()
        # By module and name: the first class from an eager call, and the names of which there were others later.
        self._first: dict[tuple, weakref.ref[type]] = {}
        self._made_again: set[tuple] = set()
        # Most regions create no classes, and every read value is looked up here.
        self._any = False

    def __contains__(self, cls: Any) -> bool:
        """Returns whether ``cls`` is one of these classes, or a member of an enum among them."""
        if not self._any:
            return False
        if is_a(cls, enum.Enum):
            cls = type(cls)
        return self._known.get(id(cls)) is cls

    def add(self, cls: Any) -> Any:
        """Notes a class and returns it. Returns another object, which a metaclass may make, without a note."""
        if is_a(cls, type):
            self._known[id(cls)] = cls
            self._any = True
        return cls

    def meet(self, cls: type, given: bool) -> None:
        """Notes a class and its bases after a graph break. ``given``: the class comes from the result of the last eager call.

        The first class with a name is known by identity. A second class with that name shows that each eager call creates its own.
        """
        if not (given or self._any or self._made_again):
            return
        heap = [k for k in CLASS_MRO.__get__(cls) if is_users_class(k)]
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
        """Returns whether ``cls`` is a class that each eager call creates for itself."""
        return self._given.get(id(cls)) is cls

    @property
    def any_given(self) -> bool:
        return bool(self._given)

    def __call__(self, make: Any, *args: Any, **kwargs: Any) -> Any:
        """Creates a class natively, which runs its metaclass and its bases' ``__init_subclass__``; notes and returns the class."""
        return self.add(make(*args, **kwargs))


def _name(cls: type) -> tuple:
    return TYPE_DICT.__get__(cls).get("__module__"), cls.__qualname__


def _is_read_by_content(cls: type) -> bool:
    """Returns whether guards can compare everything that distinguishes ``cls`` from others with its name: no metaclass or descriptor hides state."""
    if type(cls) not in PLAIN_METACLASSES:
        return False
    for name, v in TYPE_DICT.__get__(cls).items():
        t = type(v)
        if t in CLASS_MEMBERS:
            if v.__objclass__ is not cls or v.__name__ != name:
                return False
        elif not is_users_class(t) and t not in READ and hasattr(t, "__get__") and not is_a(v, BY_IDENTITY):
            return False
    return True


class MadeClass:
    """How a program makes a class again that the captured code has made.

    ``calls``: the functions with their arguments: the first returns the class, and the others change it. ``space``: the class's own attributes
    just after them. ``parts``: the objects that they have made, with the text by which each is found in the class.
    """

    __slots__ = ("calls", "parts", "space")

    def __init__(self) -> None:
        self.calls: list[tuple[Any, tuple, dict[str, Any]]] = []
        self.space: dict[str, Any] = {}
        self.parts: IdentityMap[str] = IdentityMap()

    def note(self, cls: type, call: tuple[Any, tuple, dict[str, Any]]) -> list[tuple[Any, str]]:
        """Notes a call that has made or changed the class; returns what may have been made with it, and the text for each."""
        self.calls.append(call)
        self.space = dict(TYPE_DICT.__get__(cls))
        found: list[tuple[Any, str]] = []
        for name, v in self.space.items():
            if is_a(v, MADE_WITH_CLASSES):
                found.append((v, f".__dict__[{name!r}]"))
            if is_a(v, (staticmethod, classmethod)):
                found.append((v.__func__, f".__dict__[{name!r}].__func__"))
            if name in TABLES and type(v) is dict:
                found += [(part, f".{name}[{key!r}]") for key, part in v.items()]
        return found

    @property
    def bases(self) -> tuple[type, ...]:
        return tuple([base for _, args, _ in self.calls[:1] for a in args if type(a) is tuple for base in a if is_a(base, type)])


class SegmentClasses:
    """The classes that each call creates for itself, as seen by one segment."""

    __slots__ = ("given", "local", "made", "met", "parts")

    def __init__(self, local: LocalClasses) -> None:
        # The classes that the region's calls have created.
        self.local = local
        # After a graph break: the root source of the eager call's result. The classes seen since, which guards keep alive.
        self.given: Source | None = None
        self.met = AddressSet()
        # The classes that the captured code has made: how a program makes each again.
        self.made: IdentityMap[MadeClass] = IdentityMap()
        # The objects that have been made with them, and the class of each.
        self.parts: IdentityMap[type] = IdentityMap()

    def meet(self, cls: type, src: Source) -> None:
        """Decides how guards identify a class first seen after a graph break: by content, if each eager call creates its own class."""
        if cls in self.met:
            return
        self.met.add(cls)
        if type(cls) in PLAIN_METACLASSES and is_users_class(cls):
            root = root_of(src)
            if root.op == "root" and not self.local.is_given(cls):
                self.local.meet(cls, root is self.given)

    def note(self, cls: type, call: tuple[Any, tuple, dict[str, Any]], known: Callable[[Any], bool]) -> None:
        """Notes a call in the captured code that has made or changed a class. ``known``: returns whether an object is older than that."""
        made = self.made.get(cls)
        if made is None:
            made = self.made[self.local.add(cls)] = MadeClass()
        for part, text in made.note(cls, call):
            if not known(part):
                self.part(cls, part, text)

    def part(self, cls: type, value: Any, text: str) -> Any:
        """Notes that ``text``, after the expression of a class that was made here, gives ``value``; returns the value."""
        self.made[cls].parts[value] = text
        self.parts[value] = cls
        return value

    def clear(self) -> None:
        self.met.clear()
        self.made.clear()
        self.parts.clear()
        self.given = None
