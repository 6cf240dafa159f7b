"""Values as data of JSON: plain values by what they are, other objects by an entry in the file's table of names and fingerprints."""

from __future__ import annotations

import contextlib
import functools
import operator
import re
import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch.utils._config_module import ConfigModule

from fineline.kinds import is_a
from fineline.saving.fingerprints import Fingerprints
from fineline.saving.object_names import Name, Names, NotNamed, described, find

# JSON's own values, and lists that begin with a tag.
Term = Any
_PLAIN = (str, bool, type(None))
# Objects of these types are always in the table.
_NAMED = (
    types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType, types.CodeType, property, staticmethod, classmethod,
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType,
)  # fmt: skip
# Those that are in the table if they have a name: a guard may be on the identity of one, and each has many equal ones.
_NAMED_OR_EQUAL = (re.Pattern, types.UnionType, types.GenericAlias)
_OWN = "fineline."


class Stale(Exception):
    """Something that a saved program refers to is not what it was; the text says what."""


class TermWriter:
    """Writes values as terms, and collects the table of named objects. ``special``: the terms of objects that belong to a program."""

    def __init__(self) -> None:
        self.names = Names()
        self._fingerprints = Fingerprints()
        self.table: list[Term] = []
        self._numbers: dict[int, tuple[object, int]] = {}

    def term(self, v: Any, special: Callable[[Any], Term | None] | None = None) -> Term:
        """Returns the term of a value; raises `NotNamed` if it has none."""
        if special is not None and (found := special(v)) is not None:
            return found
        t = type(v)
        if t in _PLAIN or (t is int and abs(v) < 2**63):
            return v
        if t in _NAMED_OR_EQUAL:
            with contextlib.suppress(NotNamed):
                return self.named(v)
        if (write := _WRITERS.get(t)) is not None:
            return write(v)
        if t is tuple or t is torch.Size or t is frozenset:
            items = [self.term(x, special) for x in v]
            return ["frozenset", *sorted(items, key=repr)] if t is frozenset else ["tuple" if t is tuple else "size", *items]
        if is_a(v, _NAMED) and not is_a(v, ConfigModule):
            return self.named(v)
        return self._structure(v, special)

    def named(self, v: Any, find: Callable[[Any], Name] | None = None) -> Term:
        """Returns the entry of an object in the table, which the first use adds. ``find``: where its name comes from."""
        known = self._numbers.get(id(v))
        if known is None:
            name = (find or self.names.of)(v)
            self.table.append([name.module, [[*part] if type(part) is tuple else part for part in name.path], self._fingerprints.of(v)])
            known = self._numbers[id(v)] = v, len(self.table) - 1
        return ["object", known[1]]

    def _structure(self, v: Any, special: Callable[[Any], Term | None] | None) -> Term:
        term = functools.partial(self.term, special=special)
        t = type(v)
        if is_a(v, tuple) and hasattr(t, "_fields"):
            return ["record", self.named(t), *map(term, tuple.__iter__(v))]
        if t is functools.partial:
            return ["partial", term(v.func), [term(x) for x in v.args], {name: term(x) for name, x in v.keywords.items()}]
        if t is types.MethodType:
            return ["bound", term(v.__func__), term(v.__self__)]
        if t is types.MappingProxyType:
            return ["mapping", *[[term(key), term(x)] for key, x in v.items()]]
        if t in (types.GenericAlias, types.UnionType):
            return ["alias", term(v.__origin__), term(v.__args__)] if t is types.GenericAlias else ["union", *map(term, v.__args__)]
        if t is types.MethodWrapperType:
            return ["method", term(v.__self__), v.__name__]
        if not t.__module__.startswith(_OWN):
            return self.named(v)
        try:
            return self.named(v, self.names.beside_class)
        except NotNamed:
            return ["own", self.named(t), {name: term(x) for name, x in _state(v).items()}]


class TermReader:
    """Reads terms. ``table``: that of the file."""

    def __init__(self, table: list[Term]) -> None:
        self._table = table
        self._found: dict[int, Any] = {}
        self._fingerprints = Fingerprints()

    def value(self, term: Term, special: Callable[[list], Any] | None = None) -> Any:
        """Returns the value of a term; raises `Stale` if it refers to an object that is not what it was."""
        if type(term) is not list:
            return term
        tag = term[0]
        if tag == "object":
            return self.named(term[1])
        if tag in _READERS:
            return _READERS[tag](*term[1:])
        read = functools.partial(self.value, special=special)
        match tag:
            case "tuple":
                return tuple([read(x) for x in term[1:]])
            case "size":
                return torch.Size([read(x) for x in term[1:]])
            case "frozenset":
                return frozenset([read(x) for x in term[1:]])
            case "record":
                return tuple.__new__(read(term[1]), [read(x) for x in term[2:]])
            case "partial":
                return functools.partial(read(term[1]), *map(read, term[2]), **{name: read(x) for name, x in term[3].items()})
            case "bound":
                return types.MethodType(read(term[1]), read(term[2]))
            case "method":
                return getattr(read(term[1]), term[2])
            case "dict":
                return {read(key): read(x) for key, x in term[1:]}
            case "mapping":
                return MappingProxyType({read(key): read(x) for key, x in term[1:]})
            case "alias":
                return types.GenericAlias(read(term[1]), read(term[2]))
            case "union":
                return functools.reduce(operator.or_, map(read, term[1:]))
            case "own":
                return _rebuilt(read(term[1]), {name: read(x) for name, x in term[2].items()})
        if special is None:
            raise Stale(f"the file has a value of the unknown kind {tag!r}")
        return special(term)

    def named(self, number: int) -> Any:
        """Returns an object of the table, after its fingerprint has been compared."""
        if number in self._found:
            return self._found[number]
        module, path, fingerprint = self._table[number]
        name = Name(module, tuple([tuple(part) if type(part) is list else part for part in path]))
        try:
            found = find(name)
        except Exception as e:
            raise Stale(f"{name.text()} is not there ({type(e).__name__})") from e
        try:
            now = self._fingerprints.of(found)
        except NotNamed:
            now = ""
        if now != fingerprint:
            raise Stale(f"{name.text()} has changed")
        self._found[number] = found
        return found


def _state(v: Any) -> Mapping[str, Any]:
    """Returns the attributes of an object of one of fineline's classes."""
    found = {name: getattr(v, name) for cls in type(v).__mro__ for name in _slots(cls) if hasattr(v, name)}
    return {**found, **getattr(v, "__dict__", {})}


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return tuple([name for name in ((slots,) if type(slots) is str else slots) if not name.startswith("__")])


def _rebuilt(cls: type, state: Mapping[str, Any]) -> Any:
    if not cls.__module__.startswith(_OWN):
        raise Stale(f"{cls.__qualname__} is no class of fineline")
    v: Any = object.__new__(cls)
    for name, value in state.items():
        object.__setattr__(v, name, value)
    return v


def _of_torch(v: Any) -> Term:
    return ["torch", str(v).removeprefix("torch.")]


def _pattern(v: re.Pattern) -> Term:
    if type(v.pattern) is not str:
        raise NotNamed(described(v))
    return ["pattern", v.pattern, v.flags]


# A slice and a range have plain numbers, or nothing, in them.
_WRITERS: Mapping[type, Callable[[Any], Term]] = MappingProxyType(
    {
        int: lambda v: ["int", str(v)],
        float: lambda v: ["float", v.hex()],
        complex: lambda v: ["complex", v.real.hex(), v.imag.hex()],
        bytes: lambda v: ["bytes", v.hex()],
        type(...): lambda v: ["ellipsis"],
        type(NotImplemented): lambda v: ["not implemented"],
        slice: lambda v: ["slice", *[_number(x) for x in (v.start, v.stop, v.step)]],
        range: lambda v: ["range", v.start, v.stop, v.step],
        torch.dtype: _of_torch,
        torch.layout: _of_torch,
        torch.memory_format: _of_torch,
        torch.device: lambda v: ["device", str(v)],
        re.Pattern: _pattern,
    }
)
_READERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "int": int,
        "float": float.fromhex,
        "complex": lambda real, imag: complex(float.fromhex(real), float.fromhex(imag)),
        "bytes": bytes.fromhex,
        "ellipsis": lambda: ...,
        "not implemented": lambda: NotImplemented,
        "slice": slice,
        "range": range,
        "torch": lambda name: getattr(torch, name),
        "device": torch.device,
        "pattern": re.compile,
    }
)


def _number(v: Any) -> Term:
    if v is not None and type(v) is not int:
        raise NotNamed("a slice of something other than numbers")
    return v
