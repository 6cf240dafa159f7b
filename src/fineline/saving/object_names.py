"""Names of objects that another process can follow: a module, and a path of members from there that runs no code of the user's."""

from __future__ import annotations

import functools
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from fineline.identity import AddressMap
from fineline.kinds import is_a
from fineline.region.compiled import Compiled

# A member's name in the namespace of a module or class, or a kind of member with its key.
Part = str | tuple[str, Any]
_TYPE_DICT = type.__dict__["__dict__"]
# Members that are read by their descriptors.
_MEMBERS: dict[type, tuple[str, ...]] = {
    types.FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__globals__"),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.partial: ("func",),
    functools.cached_property: ("func",),
    functools.partialmethod: ("func",),
}
# Callable objects that decorators leave in a function's place.
_WRAPPERS = frozenset({Compiled, functools._lru_cache_wrapper})
_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType, types.ClassMethodDescriptorType)
# Where objects are found whose own module or name says nothing.
_HOMES = ("builtins", "types", "torch", "torch._C", "operator", "math", "collections", "sys", "torch.nn.functional", "torch._VF")
# So many steps from a module's namespace an object may be.
_DEEPEST = 6


class Name(NamedTuple):
    """A module's name, and the path from it; an empty path means the module itself."""

    module: str
    path: tuple[Part, ...] = ()

    def text(self) -> str:
        """Returns it as a user would write it."""
        out = self.module
        for part in self.path:
            out += f".{part}" if type(part) is str else f".{part[0]}" if part[1] is None else f".{part[0]}[{part[1]!r}]"
        return out


class NotNamed(Exception):
    """Another process cannot find the object; the text says why."""


def namespace(obj: Any) -> Any:
    """Returns the namespace of a module or a class as it is stored."""
    return _TYPE_DICT.__get__(obj) if is_a(obj, type) else types.ModuleType.__getattribute__(obj, "__dict__")


def member(obj: Any, part: Part) -> Any:
    """Returns one member of an object."""
    if type(part) is str:
        return namespace(obj)[part]
    kind, key = part[0], part[1]
    match kind:
        case "namespace":
            return namespace(obj)
        case "cell":
            return obj.__closure__[key].cell_contents
        case "attribute":
            return obj.__dict__[key]
        case "constant":
            return obj.co_consts[key]
        case "item":
            return obj[key]
        case "contents":
            return obj.cell_contents
        case "bound":
            return getattr(obj, key)
    return getattr(obj, kind)


def find(name: Name) -> Any:
    """Returns the object of this name; imports its module, if it is not imported yet. Raises if there is none."""
    obj: Any = sys.modules.get(name.module)
    if obj is None:
        obj = importlib.import_module(name.module)
    for part in name.path:
        obj = member(obj, part)
    return obj


class Names:
    """Finds the names of objects; the index of a module is made when an object of it is first asked for."""

    def __init__(self) -> None:
        # The index of each module: its objects by address, which the modules keep alive.
        self._indices: dict[str, AddressMap[tuple[Part, ...]]] = {}
        self._files: dict[str, list[str]] = {}
        # Where guards read an object, and the modules in which objects have been found.
        self._suggested: AddressMap[Name] = AddressMap()
        self._met: dict[str, None] = {}

    def suggest(self, obj: Any, name: Name) -> None:
        """Notes where an object may be found, if it has no name of its own."""
        if obj not in self._suggested:
            self._suggested[obj] = name

    def of(self, obj: Any) -> Name:
        """Returns the name of an object; raises `NotNamed` if it has none."""
        name = self._of(obj)
        self._met[name.module] = None
        return name

    def _of(self, obj: Any) -> Name:
        if is_a(obj, types.ModuleType):
            name = namespace(obj).get("__name__")
            if type(name) is str and sys.modules.get(name) is obj:
                return Name(name)
            if others := _names_of_module(lambda module: module is obj):
                return Name(others[0])
            raise NotNamed(f"the module {name!r} cannot be imported by its name")
        for name in self._guesses(obj):
            if self._leads_to(name, obj):
                return name
        for module in [*self._indices, *self._likely_modules(obj)]:
            path = self._index(module).get(obj)
            if path is not None and self._leads_to(Name(module, path), obj):
                return Name(module, path)
        raise NotNamed(f"no module refers to {described(obj)}")

    def beside_class(self, obj: Any) -> Name:
        """Returns the name of an object in the module of its class; raises `NotNamed` if it has none there."""
        module = type(obj).__module__
        path = self._index(module).get(obj)
        if path is None:
            raise NotNamed(f"{module} does not refer to {described(obj)}")
        return Name(module, path)

    def _leads_to(self, name: Name, obj: Any) -> bool:
        try:
            return name.module in sys.modules and find(name) is obj
        except Exception:
            return False

    def _guesses(self, obj: Any) -> Iterator[Name]:
        """Yields the names that an object itself says it has."""
        if type(obj) is dict and type(obj.get("__name__")) is str:
            yield Name(obj["__name__"], (("namespace", None),))
            yield from [Name(name, (("namespace", None),)) for name in _names_of_module(lambda module: namespace(module) is obj)]
        if (suggested := self._suggested.get(obj)) is not None:
            yield suggested
        if is_a(obj, _DESCRIPTORS):
            yield from self._extended(obj.__objclass__, obj.__name__)
            return
        if is_a(obj, torch._ops.OpOverload):
            space, _, rest = obj._schema.name.partition("::")
            yield Name("torch", ("ops", ("bound", space), ("bound", rest), ("bound", obj._overloadname)))
        if is_a(obj, torch._ops.OpOverloadPacket):
            space, _, rest = obj._qualified_op_name.partition("::")
            yield Name("torch", ("ops", ("bound", space), ("bound", rest)))
        if is_a(obj, torch._ops.HigherOrderOperator):
            yield Name("torch", ("ops", ("bound", "higher_order"), ("bound", obj._name)))
        if not is_a(obj, (type, types.FunctionType, types.BuiltinFunctionType)):
            return
        module = _MODULE(obj) if is_a(obj, type) else getattr(obj, "__module__", None)
        qualname = _QUALNAME(obj) if is_a(obj, type) else obj.__qualname__
        if type(module) is str:
            yield Name(module, tuple(qualname.split(".")))
            # A decorator has replaced it.
            yield Name(module, (*qualname.split("."), ("attribute", "__wrapped__")))
            yield Name(module, (*qualname.split("."), ("__func__", None)))
        of = getattr(obj, "__self__", None)
        if is_a(of, types.ModuleType):
            yield Name(of.__name__, (obj.__name__,))
        elif is_a(of, type):
            yield from self._extended(of, obj.__name__)
            yield from self._extended(of, ("bound", obj.__name__))

    def _extended(self, of: Any, part: Part) -> Iterator[Name]:
        try:
            name = self.of(of)
        except NotNamed:
            return
        yield name._replace(path=(*name.path, part))

    def _likely_modules(self, obj: Any) -> Iterator[str]:
        """Yields the modules that may refer to an object, the most likely ones first."""
        module = getattr(obj, "__module__", None) if is_a(obj, (type, types.FunctionType, types.MethodType)) else None
        if type(module) is str and module in sys.modules:
            yield module
        code = obj if is_a(obj, types.CodeType) else getattr(obj, "__code__", None) if is_a(obj, types.FunctionType) else None
        if code is not None:
            yield from self._of_file(code.co_filename)
        fget = obj.fget if type(obj) is property else obj.__func__ if type(obj) in (staticmethod, classmethod) else None
        if is_a(fget, types.FunctionType) and fget.__module__ in sys.modules:
            yield fget.__module__
        cls = _MODULE(type(obj))
        if type(cls) is str and cls in sys.modules and cls != "builtins":
            yield cls
        yield from [home for home in _HOMES if home in sys.modules]
        yield from self._met
        tops = {module.partition(".")[0] for module in self._met} - {"torch", *sys.stdlib_module_names}
        yield from [module for module in [*sys.modules] if module.partition(".")[0] in tops]

    def _of_file(self, file: str) -> list[str]:
        if not self._files:
            for module, value in [*sys.modules.items()]:
                of = namespace(value).get("__file__") if is_a(value, types.ModuleType) else None
                if type(of) is str:
                    self._files.setdefault(of, []).append(module)
        return self._files.get(file, [])

    def _index(self, module: str) -> AddressMap[tuple[Part, ...]]:
        found = self._indices.get(module)
        if found is None:
            found = self._indices[module] = AddressMap()
            value = sys.modules.get(module)
            if is_a(value, types.ModuleType):
                self._enter(found, module, value, ())
        return found

    def _enter(self, index: AddressMap[tuple[Part, ...]], module: str, obj: Any, path: tuple[Part, ...]) -> None:
        """Adds the members of an object, and theirs. Of what belongs to another module only the object itself."""
        for part, value in _members(obj):
            if value is None or type(value) in (str, int, float, bool, bytes) or value in index:
                continue
            index[value] = (*path, part)
            # Functions of no module, such as a named tuple's constructor, belong to what holds them.
            of = _module_of(value) if is_a(value, (type, types.FunctionType)) else None
            own = not _imported(of) or of == module
            if own and len(path) < _DEEPEST and not is_a(value, types.ModuleType):
                self._enter(index, module, value, (*path, part))


def _names_of_module(wanted: Callable[[types.ModuleType], bool]) -> list[str]:
    """Returns the names by which a module can be imported: some modules have the names of others."""
    return [name for name, module in [*sys.modules.items()] if is_a(module, types.ModuleType) and wanted(module)]


def _imported(name: object) -> bool:
    return type(name) is str and name in sys.modules


_MODULE = type.__dict__["__module__"].__get__
_QUALNAME = type.__dict__["__qualname__"].__get__


def _module_of(obj: Any) -> object:
    return _MODULE(obj) if is_a(obj, type) else obj.__module__


def _members(obj: Any) -> Iterator[tuple[Part, Any]]:
    """Yields the members of an object by which others are found."""
    if is_a(obj, (types.ModuleType, type)):
        yield from [(name, value) for name, value in [*namespace(obj).items()] if type(name) is str]
        if is_a(obj, type) and type(obj) is not type:
            # No module refers to some metaclasses, such as that of PyTorch's classes in C++.
            yield ("__class__", None), type(obj)
        return
    if type(obj) in _WRAPPERS and "__wrapped__" in obj.__dict__:
        yield ("attribute", "__wrapped__"), obj.__dict__["__wrapped__"]
    for name in _MEMBERS.get(type(obj), ()):
        # Most globals are the namespace of a module, which has a name; a named tuple's constructor has its own.
        if name != "__globals__" or not _imported(obj.__globals__.get("__name__")):
            yield (name, None), getattr(obj, name)
    if type(obj) is types.FunctionType:
        for i, cell in enumerate(obj.__closure__ or ()):
            try:
                yield ("cell", i), cell.cell_contents
            except ValueError:
                continue
        yield from [(("attribute", name), value) for name, value in obj.__dict__.items() if type(name) is str]
    elif type(obj) is types.CodeType:
        yield from [(("constant", i), value) for i, value in enumerate(obj.co_consts) if type(value) is types.CodeType]
    elif type(obj) is tuple:
        yield from [(("item", i), value) for i, value in enumerate(obj)]
    elif type(obj) is dict and len(obj) <= 1000:
        yield from [(("item", key), value) for key, value in [*obj.items()] if type(key) is str and is_a(value, (type, types.FunctionType))]


def described(obj: Any) -> str:
    """Returns what a message calls an object, without running its code."""
    if is_a(obj, types.CodeType):
        return f"the code of {obj.co_qualname}"
    name = getattr(obj, "__qualname__", "") if is_a(obj, (type, types.FunctionType, types.BuiltinFunctionType)) else ""
    return f"the {type(obj).__qualname__} {name}" if name else f"an object of type {type(obj).__qualname__}"
