"""Fingerprints of named objects: what a program relies on in an object that the guards know by identity only."""

from __future__ import annotations

import collections
import enum
import functools
import hashlib
import operator
import re
import types
from typing import Any

import torch

from fineline.kinds import is_a, is_users_class
from fineline.policy.marks import MARKS
from fineline.saving.object_names import NotNamed, described

_MRO = type.__dict__["__mro__"].__get__
_DICT = type.__dict__["__dict__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__
_MODULE = type.__dict__["__module__"].__get__
# Containers and objects whose state guards read at each call.
_READ_BY_GUARDS = (dict, list, set, object, types.ModuleType, types.CellType)
_C_OBJECTS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType, torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator,
)  # fmt: skip
# C objects that never change, so that no guard reads them: what they were made of is what they tell `pickle`.
_MADE_ONCE = (operator.itemgetter, operator.attrgetter, operator.methodcaller, type(vars(collections.namedtuple("_", "a"))["a"]))


class Fingerprints:
    """Computes fingerprints, each once."""

    def __init__(self) -> None:
        self._codes: dict[int, tuple[types.CodeType, str]] = {}

    def of(self, obj: Any) -> str:
        """Returns the fingerprint of an object; raises `NotNamed` for one of a kind whose state no guard reads."""
        mark = MARKS.get(obj)
        text = repr((self._parts(obj), mark.verb if mark is not None else None))
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def _parts(self, obj: Any) -> Any:
        if is_a(obj, types.CodeType):
            return self.code(obj)
        if type(obj) is types.FunctionType:
            return "function", self.code(obj.__code__)
        if type(obj) is property:
            return "property", [None if f is None else self._parts(f) for f in (obj.fget, obj.fset, obj.fdel)]
        if type(obj) in (staticmethod, classmethod):
            return type(obj).__name__, self._parts(obj.__func__)
        if type(obj) is functools.partial:
            return "partial", self._parts(obj.func), [self._value(x) for x in obj.args], [(name, self._value(x)) for name, x in obj.keywords.items()]
        if is_a(obj, type):
            return self._class(obj)
        if is_a(obj, _C_OBJECTS):
            return type(obj).__name__, getattr(obj, "__name__", "")
        if is_a(obj, enum.Enum):
            return "enum", self._class(type(obj)), obj._name_
        if is_a(obj, _MADE_ONCE):
            made: Any = obj.__reduce__()
            return type(obj).__name__, "" if made[0] is type(obj) else self._value(made[0]), [self._value(x) for x in made[1]]
        if type(obj) is re.Pattern:
            return "pattern", repr(obj.pattern), obj.flags
        if type(obj) in (types.UnionType, types.GenericAlias):
            return type(obj).__name__, self._value(obj.__origin__) if type(obj) is types.GenericAlias else "", self._value(obj.__args__)
        if type(obj) is tuple or obj is None:
            return "tuple", [self._value(item) for item in obj or ()]
        if type(obj) in _READ_BY_GUARDS or all([is_users_class(cls) or cls in _READ_BY_GUARDS for cls in _MRO(type(obj))]):
            return "object", _MODULE(type(obj)), _QUALNAME(type(obj))
        raise NotNamed(f"{described(obj)} has state that no guard reads")

    def _value(self, value: Any) -> Any:
        if value is None or type(value) in (bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format):
            return type(value).__name__, repr(value)
        return self._parts(value)

    def _unread(self, value: Any) -> Any:
        """Returns the parts of a value that belongs to something that never changes: no guard reads its items either."""
        t = type(value)
        if t in (list, tuple):
            return t.__name__, [self._unread(x) for x in value]
        if t in (set, frozenset):
            return t.__name__, sorted([repr(self._unread(x)) for x in value])
        if t is dict:
            return "dict", [(self._unread(key), self._unread(x)) for key, x in value.items()]
        found = self._value(value)
        if found[0] == "object":
            raise NotNamed(f"{described(value)} has state that no guard reads")
        return found

    def _class(self, cls: type) -> Any:
        """Returns the layout of a class, its special methods, which C looks up by itself, and an enum's members; guards read its other attributes."""
        classes = []
        for base in _MRO(cls):
            special: list[Any] = []
            if is_users_class(base):
                for name, value in sorted(_DICT(base).items()):
                    if name.startswith("__") and type(value) in (types.FunctionType, staticmethod, classmethod, property) and not _is_pytorchs(base, value):
                        special.append((name, self._parts(value)))
            classes.append((str(_MODULE(base)), _QUALNAME(base), special))
        members = [(name, member._name_, self._unread(member._value_)) for name, member in cls._member_map_.items()] if is_a(cls, enum.EnumType) else ()
        return "class", classes, type(cls).__name__, cls.__basicsize__, cls.__itemsize__, repr(_DICT(cls).get("__slots__")), members

    def code(self, code: types.CodeType) -> str:
        """Returns a hash of all that a code object is but for the name of its file; its lines count, because messages show them."""
        known = self._codes.get(id(code))
        if known is not None:
            return known[1]
        consts = [self.code(c) if type(c) is types.CodeType else (type(c).__name__, _constant(c)) for c in code.co_consts]
        parts = (
            code.co_code, consts, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars, code.co_flags, code.co_argcount,
            code.co_posonlyargcount, code.co_kwonlyargcount, code.co_stacksize, code.co_exceptiontable, code.co_qualname, code.co_firstlineno,
            code.co_linetable,
        )  # fmt: skip
        found = hashlib.sha256(repr(parts).encode()).hexdigest()
        self._codes[id(code)] = code, found
        return found


def _is_pytorchs(base: type, value: Any) -> bool:
    """Returns whether a function in a class of PyTorch's is its own, and covered by its version: once a process uses TorchDynamo, `nn.Module` has others."""
    modules = (str(_MODULE(base)), str(value.__module__) if type(value) is types.FunctionType else "")
    return all([module.partition(".")[0] == "torch" for module in modules])


def _constant(value: Any) -> str:
    """Returns a text of a constant in code, which is the same in each process: the order of a frozenset is not."""
    if type(value) is frozenset:
        return f"frozenset({sorted(map(_constant, value))})"
    return f"({', '.join(map(_constant, value))})" if type(value) is tuple else repr(value)


def defaults_fingerprint(defaults: tuple | None, kwdefaults: dict | None) -> str:
    """Returns the fingerprint of a function's defaults, which a program knows by the identity of their containers."""
    found = Fingerprints()
    values = [*(defaults or ()), *[x for name in sorted(kwdefaults or ()) for x in (name, (kwdefaults or {})[name])]]
    return found.of(tuple(values))
