"""Rules by the identity of the objects that they select: functions and other objects, methods, and classes with all their members."""

from __future__ import annotations

import types
from collections.abc import Iterable, Sequence

from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.policy.rule import Rule
from fineline.policy.selector import Selector, parts


class Table:
    """Rules of one rank by identity: of objects, methods of an object or of a class, and classes with all their members."""

    KINDS = ("object", "method", "class")

    def __init__(self) -> None:
        self.objects = IdentityMap[Rule]()
        # By function, and by the object or class whose method it is.
        self.methods = IdentityMap[IdentityMap[Rule]]()
        self.classes = IdentityMap[Rule]()
        # Classes in classes, and static methods, which are called without their class.
        self.parts = IdentityMap[Rule]()
        # Whether a class or an instance is selected: then a call's first argument matters.
        self.by_holder = False
        self._kin_of = IdentityMap[tuple[type, ...]]()

    def add(self, s: Selector, rule: Rule) -> None:
        if s.kind == "method":
            fn, holder = s.key
            self.methods.setdefault(fn.obj, IdentityMap())[holder.obj] = rule
            self.by_holder = True
            return
        target = s.key.obj
        if s.kind == "object":
            self.objects[target] = rule
            self.by_holder = self.by_holder or type(target) is not types.FunctionType
            return
        self.by_holder = True
        self.classes[target] = rule
        # For a class, "allow" is about its own call only: `apply` of a torch.autograd.Function.
        for part in parts(target) if rule.verb != "allow" else ():
            self.parts[part] = rule

    def __bool__(self) -> bool:
        return bool(self.objects or self.methods or self.classes)

    def get(self, fn: object, t: type, args: Sequence[object]) -> Rule | None:
        """Returns the rule for a call of ``fn``, which is of type ``t``."""
        rule = self.objects.get(fn)
        if rule is not None:
            return rule
        if t is types.FunctionType:
            rule = self.of_holder(fn, args[0]) if args and self.by_holder else None
            return rule or self.parts.get(fn)
        if self.classes and t is not types.BuiltinFunctionType:
            for k in self.kin(fn if is_a(fn, type) else t):
                return self.class_rule(k)
        return None

    def of_holder(self, fn: object, holder: object) -> Rule | None:
        """Returns the rule of an object or class whose method ``fn`` is, for a call with ``holder`` as first argument."""
        rule = self.method_rule(fn, holder)
        if rule is not None:
            return rule
        cls = holder if is_a(holder, type) else type(holder)
        rule = self.objects.get(holder)
        if rule is not None and defines(cls.__mro__, fn):
            return rule
        for k in self.kin(cls):
            if defines(k.__mro__, fn):
                return self.class_rule(k)
        return None

    def method_rule(self, fn: object, holder: object) -> Rule | None:
        """Returns the rule for the method ``fn`` of ``holder``, or of one of its classes."""
        by_holder = self.methods.get(fn)
        if by_holder is None:
            return None
        classes = (holder if is_a(holder, type) else type(holder)).__mro__
        return next((rule for rule in map(by_holder.get, (holder, *classes)) if rule is not None), None)

    def class_rule(self, cls: type) -> Rule | None:
        return self.classes.get(cls) or self.parts.get(cls)

    def kin(self, cls: type) -> Iterable[type]:
        """Returns the classes with a rule that ``cls`` is or inherits from, the nearest first."""
        found = self._kin_of.get(cls)
        if found is None:
            found = self._kin_of[cls] = tuple([k for k in cls.__mro__ if self.class_rule(k) is not None])
        return found


def defines(classes: tuple[type, ...], fn: object) -> bool:
    """Returns whether one of these classes has ``fn`` as a method, class method or property."""
    name = getattr(fn, "__name__", "")
    for k in classes:
        # A lambda has no name of its own: compare all members.
        for found in [k.__dict__.get(name)] if name != "<lambda>" else k.__dict__.values():
            if found is fn or any(getattr(found, part, None) is fn for part in ("__func__", "fget", "fset", "fdel", "func")):
                return True
    return False
