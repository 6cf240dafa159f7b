"""Classes that each call of a region creates for itself, so that guards compare their contents instead of their identity.

The captured code's own class statements and calls create them, which run eagerly, or another eager call does. A class from another eager
call may be any class: guards must compare everything that distinguishes it, and guard that it is not one of the classes that the program
knows by identity (``guard_distinct_classes``).
"""

from __future__ import annotations

import enum
import weakref
from functools import partial
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    UnionType,
    WrapperDescriptorType,
)
from typing import Any

from fineline.guards.source import Source
from fineline.identity import IdentitySet
from fineline.kinds import is_a, is_users_class
from fineline.tracing.guarded_trace import GuardedTrace
from fineline.tracing.identity_guards import PLAIN_VALUE, BaseEquals, guard_mro
from fineline.tracing.recreated_classes import CLASS_MEMBERS, CLASS_MRO, HOLDERS, PLAIN_METACLASSES, TYPE_DICT

NAMES = tuple([type.__dict__[name] for name in ("__name__", "__qualname__")])
LAYOUT = tuple([type.__dict__[name] for name in ("__basicsize__", "__itemsize__", "__dictoffset__", "__weakrefoffset__")])
FLAGS = type.__dict__["__flags__"]
# Set while CPython makes the class ready and caches its attributes.
CHANGING_FLAGS = 1 << 12 | 1 << 13 | 1 << 19
# For a search of guards' operands: types that contain no classes, and the fields of other types that may contain classes.
NO_CLASSES = frozenset({type(None), bool, int, float, complex, str, bytes, CodeType, FunctionType})
PARTS_OF: dict[type, tuple[str, ...]] = {
    partial: ("func", "args", "keywords"),
    BuiltinFunctionType: ("__self__",),
    MethodType: ("__self__", "__func__"),
    GenericAlias: ("__origin__", "__args__"),
    UnionType: ("__args__",),
    **dict.fromkeys(
        (MemberDescriptorType, GetSetDescriptorType, MethodDescriptorType, WrapperDescriptorType, ClassMethodDescriptorType), ("__objclass__",)
    ),
}
MOST_DEPTH = 20


# The dicts in which an enum keeps its members.
MEMBERS = frozenset({"_member_map_", "_value2member_map_"})


def guard_distinct_classes(trace: GuardedTrace) -> None:
    """Guards that the classes from eager calls differ from each other and from the classes that the program knows by identity.

    Each read has a guard, so that the guards contain all classes that the program knows.
    """
    if not trace.classes.local.any_given:
        return
    anew = [src for src in trace.sources.values() if src.op != "pin" and trace.classes.local.is_given(src.value)]
    if not anew:
        return
    held = IdentitySet()
    for _, _, _, payload in trace.guards.steps:
        _find_classes(payload, held)
    for src in anew:
        if src.value in held:
            held.discard(src.value)
            # Another guard requires exactly this class.
            trace.guards.check(src, "is", src.value)
    trace.guards.distinct(anew, [trace.guards.pin(k, k.__qualname__) for k in held if type(k) in PLAIN_METACLASSES])


def _find_classes(v: Any, found: IdentitySet, depth: int = 0) -> None:
    """Adds to ``found`` the classes defined in Python code that the operand of a guard contains."""
    t = type(v)
    if is_a(v, type):
        if is_users_class(v):
            found.add(v)
    elif t in NO_CLASSES or depth > MOST_DEPTH:
        return
    elif is_a(v, enum.Enum):
        found.add(t)
    elif is_a(v, (tuple, frozenset)):
        for part in frozenset.__iter__(v) if is_a(v, frozenset) else tuple.__iter__(v):
            _find_classes(part, found, depth + 1)
    elif t is dict and depth:
        # A dict that is an operand itself, such as a module's globals, is read item by item, with guards.
        _find_classes((*v, *v.values()), found, depth + 1)
    elif t is weakref.ref:
        _find_classes(v(), found, depth + 1)
    elif t in PARTS_OF:
        _find_classes(tuple([getattr(v, name) for name in PARTS_OF[t]]), found, depth + 1)
    elif t.__module__.startswith("fineline."):
        _find_classes(tuple(getattr(v, "__dict__", {}).values()), found, depth + 1)


def load_class(trace: GuardedTrace, cls: Any, src: Source) -> None:
    """Registers a class that this call created before the segment started, and guards its contents."""
    trace.adopt(cls, src)
    trace.check_type(src, type(cls))
    trace.load_members(cls, src, NAMES)
    guard_mro(trace, cls)
    # Rules match the module's name too, and C reads the abstract methods.
    for name in [name for name in ("__module__", "__abstractmethods__") if name in TYPE_DICT.__get__(cls)]:
        value = TYPE_DICT.__get__(cls)[name]
        trace.load(value, trace.guards.access(src, "member", ClassItem(name), value))
    trace.guards.check(src, "predicate", (SameLayout(cls), "lays out its instances in the same way"), "layout")


def load_member(trace: GuardedTrace, member: enum.Enum, src: Source) -> None:
    """Registers a member of an enum that this call created before the segment started; guards the identity of a member without an entry there."""
    if not _is_own(member):
        trace.guards.check(src, "is", member)
        trace.adopt(member, src)
        return
    trace.adopt(member, src)
    trace.check_type(src, type(member))
    trace.load_members(member, src, ENUM_ITEMS)
    holder = src.parent.key if src.op == "key" and src.parent is not None else None
    if type(holder) is not ClassItem or holder.__name__ not in MEMBERS:
        trace.guards.check(src, "predicate", (_is_own, "is the one that its enum has"), "own")
    if is_a(member, tuple(PLAIN_VALUE)):
        trace.guards.check(src, "predicate", (BaseEquals(member), f"== {member._value_!r}"))


def _is_own(member: Any) -> bool:
    """Returns whether the member's enum has it under its name or its number, which identify it within the enum."""
    if not is_a(member, enum.Enum):
        return False
    space, fields = TYPE_DICT.__get__(type(member)), object.__getattribute__(member, "__dict__")
    # Flags create a combined member on demand; it has no name among the members.
    for members, field, kind in (("_member_map_", "_name_", str), ("_value2member_map_", "_value_", int)):
        table, key = space.get(members), fields.get(field)
        if type(table) is dict and type(key) is kind and table.get(key) is member:
            return True
    return False


def find(trace: GuardedTrace, cls: type, name: str) -> type | None:
    """Guards the result of looking up a name on a class that this call created; returns the older class in its MRO that defines the name."""
    guards = trace.guards
    for k in CLASS_MRO.__get__(cls):
        here = name in TYPE_DICT.__get__(k)
        if not is_users_class(k):
            if here:
                return None
            continue
        if k in trace.classes.made:
            # The captured code, which is guarded, decides what it holds.
            if here:
                return None
            continue
        local = k in trace.classes.local
        if here and not local:
            return k
        if here:
            src = trace.sources.get(k) or guards.pin(k, k.__qualname__)
            descr = TYPE_DICT.__get__(k)[name]
            load_item(trace, descr, guards.access(src, "member", ClassItem(name), descr))
            return None
        guard_lack(trace, k, name)
    return None


def guard_lack(trace: GuardedTrace, cls: type, name: str) -> None:
    """Guards that a class has no attribute ``name`` of its own, whatever its bases have."""
    if is_users_class(cls) and cls not in trace.classes.made:
        src = (trace.sources.get(cls) if cls in trace.classes.local else None) or trace.guards.pin(cls, cls.__qualname__)
        trace.guards.check(src, "predicate", (partial(_class_lacks, name), f"has no {name} of its own"), ("lacks", name))


def is_method(src: Source) -> bool:
    """Returns whether ``src`` is an entry of such a class's dict, or is held by a descriptor in such an entry."""
    return type(src.key) is ClassItem or (src.parent is not None and type(src.parent.key) is ClassItem)


def load_item(trace: GuardedTrace, descr: Any, src: Source) -> None:
    if type(descr) in CLASS_MEMBERS:
        trace.check_type(src, type(descr))
        return
    trace.load(descr, src)
    trace.load_members(descr, src, HOLDERS.get(type(descr), ()))


class ClassOf:
    """Reads an object's class as a member."""

    __name__ = "__class__"

    def __get__(self, obj: Any, cls: Any = None) -> type:
        return type(obj)


CLASS_OF = ClassOf()


class ClassItem:
    """Reads an entry of a class's own dict as a member."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __get__(self, cls: Any, meta: Any = None) -> Any:
        return TYPE_DICT.__get__(cls)[self.__name__]


class EnumItem:
    """Reads an entry of the dict of an enum's member as a member."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __get__(self, member: Any, cls: Any = None) -> Any:
        return object.__getattribute__(member, "__dict__")[self.__name__]


ENUM_ITEMS = EnumItem("_name_"), EnumItem("_value_")


class SlotOf:
    """Reads a slot of a class that each call creates, by the position of the class in the object's MRO."""

    def __init__(self, obj: Any, descr: Any) -> None:
        self.at, self.__name__ = type(obj).__mro__.index(descr.__objclass__), descr.__name__

    def __get__(self, obj: Any, cls: Any = None) -> Any:
        return TYPE_DICT.__get__(CLASS_MRO.__get__(type(obj))[self.at])[self.__name__].__get__(obj)


def member_of(trace: GuardedTrace, obj: Any, descr: Any) -> Any:
    """Returns the descriptor that reads the same member in another call."""
    return SlotOf(obj, descr) if type(descr) in CLASS_MEMBERS and descr.__objclass__ in trace.classes.local else descr


class SameLayout:
    """A predicate: the C layout of a class (the fields of its instances and its flags) is the one seen at capture."""

    def __init__(self, cls: type) -> None:
        self.seen = self._layout(cls)

    def __call__(self, cls: Any) -> bool:
        return is_a(cls, type) and self._layout(cls) == self.seen

    @staticmethod
    def _layout(cls: type) -> tuple:
        return tuple([d.__get__(cls) for d in LAYOUT]) + (FLAGS.__get__(cls) & ~CHANGING_FLAGS,)


class SameCode:
    def __init__(self, code: CodeType) -> None:
        self.code = code

    def __call__(self, code: CodeType) -> bool:
        return code == self.code


def _class_lacks(name: str, cls: Any) -> bool:
    return name not in TYPE_DICT.__get__(cls)
