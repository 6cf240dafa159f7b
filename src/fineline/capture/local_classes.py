"""Classes that captured code makes: each call makes its own, so guards know them by what they hold, not by which they are."""

from __future__ import annotations

import enum
from functools import partial
from types import CodeType, GetSetDescriptorType, MemberDescriptorType
from typing import Any
from weakref import WeakValueDictionary

from fineline.capture.watch import CLASS_MRO, HEAP_TYPE, PLAIN_VALUE, BaseEquals, guard_mro
from fineline.kinds import is_a

TYPE_DICT = type.__dict__["__dict__"]
NAMES = tuple([type.__dict__[name] for name in ("__name__", "__qualname__")])
# The descriptors that a class gets of its own for slots, and for the dict and the weak references of its instances.
CLASS_MEMBERS = (MemberDescriptorType, GetSetDescriptorType)
# What holds functions: they are made anew with the class.
HOLDERS = {
    property: tuple([property.__dict__[name] for name in ("fget", "fset", "fdel")]),
    staticmethod: (staticmethod.__dict__["__func__"],),
    classmethod: (classmethod.__dict__["__func__"],),
}


# Where an enum keeps its members.
MEMBERS = frozenset({"_member_map_", "_value2member_map_"})


class LocalClasses:
    """The classes that the calls of one region have made; held weakly, and by id: a metaclass may hash its own way."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[int, type] = WeakValueDictionary()
        # Most regions make none, and every value is asked about.
        self._any = False

    def __contains__(self, cls: Any) -> bool:
        """... or a member of an enum among them: each call has its own."""
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

    def __call__(self, make: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes a class natively, with what its metaclass and its bases have to say."""
        return self.add(make(*args, **kwargs))

    def rebuild(self, meta: Any, name: str, bases: tuple, names: tuple[str, ...], namespace: dict[str, Any]) -> Any:
        """A class as captured code left it, but for what ``names`` stand for: that is set afterwards, as it may hold the class."""
        return self.add(meta.__new__(meta, name, bases, {**dict.fromkeys(names), **namespace}))


def is_local(cap: Any, cls: Any) -> bool:
    """Whether another call would have another class in the place of ``cls``."""
    return cls in cap.classes


def load_class(cap: Any, cls: Any, src: Any) -> None:
    """A class that this call made before the segment began."""
    cap.adopt(cls, src)
    cap.check_type(src, type(cls))
    cap.load_members(cls, src, NAMES)
    guard_mro(cap, cls)


def load_member(cap: Any, member: enum.Enum, src: Any) -> None:
    """A member of an enum that this call made before the segment began; found elsewhere than in its class, it is this very one."""
    if src.op != "key" or type(src.parent.key) is not ClassItem or src.parent.key.__name__ not in MEMBERS:
        cap.guards.check(src, "is", member)
    else:
        cap.check_type(src, type(member))
        cap.load_members(member, src, ENUM_ITEMS)
        if is_a(member, tuple(PLAIN_VALUE)):
            cap.guards.check(src, "predicate", (BaseEquals(member), f"== {member._value_!r}"))
    cap.adopt(member, src)


def find(cap: Any, cls: type, name: str, descr: Any) -> type | None:
    """Guards what a name is on a class made by the call; -> the class made before it, if any, that has the name."""
    guards = cap.guards
    for k in CLASS_MRO.__get__(cls):
        here = name in TYPE_DICT.__get__(k)
        if id(k) in cap.made or not k.__flags__ & HEAP_TYPE:
            if here:
                return None
            continue
        local = is_local(cap, k)
        if here and not local:
            return k
        src = (cap.sources.get(id(k)) if local else None) or guards.pin(k, k.__qualname__)
        if here:
            load_item(cap, descr, guards.access(src, "member", ClassItem(name), descr))
            return None
        guards.check(src, "predicate", (partial(_class_lacks, name), f"has no {name} of its own"), ("lacks", name))
    return None


def is_method(src: Any) -> bool:
    """Whether ``src`` is what such a class holds, or what a descriptor holds for it."""
    return type(src.key) is ClassItem or (src.parent is not None and type(src.parent.key) is ClassItem)


def load_item(cap: Any, descr: Any, src: Any) -> None:
    if type(descr) in CLASS_MEMBERS:
        cap.check_type(src, type(descr))
        return
    cap.load(descr, src)
    cap.load_members(descr, src, HOLDERS.get(type(descr), ()))


class ClassOf:
    """An object's class as a member."""

    __name__ = "__class__"

    def __get__(self, obj: Any, cls: Any = None) -> type:
        return type(obj)


CLASS_OF = ClassOf()


class ClassItem:
    """What a class itself holds under a name, as a member."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __get__(self, cls: Any, meta: Any = None) -> Any:
        return TYPE_DICT.__get__(cls)[self.__name__]


class EnumItem:
    """... of an enum's member."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __get__(self, member: Any, cls: Any = None) -> Any:
        return object.__getattribute__(member, "__dict__")[self.__name__]


ENUM_ITEMS = EnumItem("_name_"), EnumItem("_value_")


class SlotOf:
    """A slot of a class that each call makes anew, by the place of the class in the object's MRO."""

    def __init__(self, obj: Any, descr: Any) -> None:
        self.at, self.__name__ = type(obj).__mro__.index(descr.__objclass__), descr.__name__

    def __get__(self, obj: Any, cls: Any = None) -> Any:
        return TYPE_DICT.__get__(CLASS_MRO.__get__(type(obj))[self.at])[self.__name__].__get__(obj)


def member_of(cap: Any, obj: Any, descr: Any) -> Any:
    """The descriptor that reads the member in another call."""
    return SlotOf(obj, descr) if type(descr) in CLASS_MEMBERS and descr.__objclass__ in cap.classes else descr


class SameCode:
    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __call__(self, code: CodeType) -> bool:
        return code == self.code


def _class_lacks(name: str, cls: Any) -> bool:
    return name not in TYPE_DICT.__get__(cls)
