"""Selectors of rules: an object, a class, a dotted name, a file, an operator, or a glob over names, files or operators."""

from __future__ import annotations

import builtins
import contextlib
import enum
import fnmatch
import functools
import importlib.util
import inspect
import itertools
import operator
import os
import pkgutil
import re
import sys
import types
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import nn
from torch._library.custom_ops import CustomOpDef
from torch._ops import OpOverload, OpOverloadPacket, _OpNamespace

from fineline.errors import BadRule
from fineline.kinds import is_a, is_users_class
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.releases import APPLY, APPLY_HOME, applied, method_parts
from fineline.torch_facts.spellings import operator_name

# Ranks: the more specific selector wins, in any scope.
GLOB, FILE, NAME, CLASS, OBJECT, OVERLOAD = range(6)
RANKS = ("glob", "file", "exact name", "class", "object", "object")
WILD = re.compile(r"[*?\[]")
OPERATOR_TEXT = re.compile(r"^(torch\.ops\.|[\w*?\[\]]+::)")

# The public modules and classes in which users find the functions of C modules.
HOMES = (
    ("torch", torch), ("torch.Tensor", torch.Tensor), ("operator", operator), ("torch.nn.functional", nn.functional),
    ("torch.linalg", torch.linalg), ("torch.fft", torch.fft), ("torch.special", torch.special),
)  # fmt: skip
# The beginnings of the qualified names of functions that pybind11 makes.
PYBIND = ("PyCapsule", "pybind11_detail_function_record")


class Identity:
    """An object as a key, compared and hashed by identity."""

    __slots__ = ("obj",)

    def __init__(self, obj: object) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return is_a(other, Identity) and self.obj is other.obj

    def __hash__(self) -> int:
        return id(self.obj)


# What a selector compares: its type goes with the kind of the selector.
KeyT = TypeVar("KeyT")


class Selector(NamedTuple, Generic[KeyT]):
    """A selector. ``kind``: "object", "method", "class", "name", "file", "operator" (all spellings of one), "dispatch" (calls that
    dispatch to an operator), or "glob" over names, files or operators.

    ``key`` is compared: an `Identity`, a text, for files the patterns, and for globs (over, pattern, other patterns with the same meaning).
    """

    rank: int
    kind: str
    key: KeyT
    text: str

    @property
    def length(self: Selector) -> int:
        """Returns the length by which selectors of one rank are compared; for a glob, without its wildcards."""
        return len(WILD.sub("", self.key[1])) if self.kind == "glob" else len(self.text)


def selectors(value: Any, folder: Path | None = None) -> Iterator[Selector]:
    """Yields the selectors of ``value``, which a user passes for a verb: one, or lists and tuples of them. Raises `BadRule`.

    ``folder``: another folder in which files are looked up.
    """
    if type(value) in (list, tuple, set, frozenset):
        for item in value:
            yield from selectors(item, folder)
    elif type(value) is Selector:
        yield value
    elif type(value) is str:
        yield from _of_text(value.strip(), folder)
    else:
        yield from map(of_object, callables(value))


def callables(value: object) -> Iterator[object]:
    """Yields the callables in ``value``: the functions of a property, the function that another descriptor wraps, or itself."""
    if is_a(value, property):
        yield from [fn for fn in (value.fget, value.fset, value.fdel) if fn is not None]
    elif is_a(value, (functools.cached_property, functools.partialmethod, functools.singledispatchmethod)):
        yield value.func
    else:
        yield value


def _has_methods(value: object) -> bool:
    """Returns whether ``value`` is an instance of a class in Python, whose methods a capture can reach."""
    return is_users_class(type(value)) and not is_a(value, (torch.Tensor, enum.Enum))


def of_object(value: object) -> Selector:
    """Returns the selector for a function, class, module, operator or Python module itself."""
    if is_a(value, (staticmethod, classmethod)):
        value = value.__func__
    text = describe(value)
    if is_a(value, OpOverload):
        return Selector(OVERLOAD, "dispatch", overload_name(value), text)
    if is_a(value, OpOverloadPacket):
        return Selector(OBJECT, "dispatch", value._qualified_op_name, text)
    if is_a(value, _OpNamespace):
        return Selector(GLOB, "glob", ("operator", f"{value.name}::*"), text)
    if is_a(value, types.ModuleType):
        return Selector(NAME, "name", value.__name__, text)
    if (parts := method_parts(value)) is not None:
        function, holder = parts
        if not is_a(holder, type):
            return Selector(OBJECT, "method", (Identity(function), Identity(holder)), text)
        # Select the class: all these classes inherit one function.
        value = holder if function is APPLY else function
    if is_a(value, type):
        return Selector(CLASS, "class", Identity(value), text)
    name = operator_name(value)
    if name is not None:
        return Selector(OBJECT, "operator", name, text)
    if callable(value) or is_a(value, property) or _has_methods(value):
        return Selector(OBJECT, "object", Identity(value), text)
    raise BadRule(f"an object of type {type(value).__name__} selects nothing: {value!r:.80}", id="FL211")


def parts(cls: type) -> Iterator[object]:
    """Yields the parts of a class that code reaches without it: its static methods, and the classes defined in it with theirs."""
    for member in list(vars(cls).values()):
        if is_a(member, staticmethod) and is_a(member.__func__, types.FunctionType):
            yield member.__func__
        elif is_a(member, type) and member.__qualname__.startswith(f"{cls.__qualname__}.") and member.__module__ == cls.__module__:
            yield member
            yield from parts(member)


def is_looked_into(value: object) -> bool:
    """Returns whether a capture traces the code of ``value``: a function or class in Python, or a module instance. It is not a node."""
    if is_a(value, type):
        return is_users_class(value) and not issubclass(value, torch.autograd.Function)
    return is_a(value, nn.Module) or (is_a(value, types.FunctionType) and classify_torch(value) is None)


def python_function(value: object) -> types.FunctionType | None:
    """Returns the Python function that a selector, an object or a text, names; else None."""
    found = loaded(value.strip()) if type(value) is str else value
    found = getattr(found, "__func__", found) if is_a(found, (staticmethod, classmethod, types.MethodType)) else found
    return found if is_a(found, types.FunctionType) else None


def is_c(value: object) -> bool:
    """Returns whether a selector, an object or a text, names one function or class in C."""
    found = loaded(value.strip()) if type(value) is str else value
    return is_a(found, IN_C) or (is_a(found, type) and not is_users_class(found))


IN_C = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType,
)  # fmt: skip


def overload_name(op: OpOverload) -> str:
    return f"{op._schema.name}.{op._overloadname}"


def describe(value: Any) -> str:
    """Returns a callable's name as users write it, for messages, rules and reports."""
    if is_a(value, (OpOverload, OpOverloadPacket)):
        return f"torch.ops.{value}"
    if is_a(value, CustomOpDef):
        return f"torch.ops.{value._qualname.replace('::', '.')}"
    if is_a(value, types.ModuleType):
        return str(value.__name__)
    if is_a(value, functools.partial):
        return f"functools.partial({describe(value.func)}, ...)"
    if (cls := applied(value)) is not None:
        return f"{describe(cls)}.apply"
    if value is APPLY:
        return ".".join(APPLY_HOME[:2])
    if is_a(value, torch.jit.ScriptFunction):
        return str(value.name)
    name = _written_name(value)
    if name is None:
        return f"an instance of {type(value).__qualname__}"
    module = getattr(value, "__module__", None)
    owner = getattr(value, "__objclass__", None)
    last = name.rpartition(".")[2]
    for public, home in HOMES:
        # The names of C functions may contain that of the module: torch.linalg.inv is linalg_inv.
        for short in (last, last.removeprefix("special_").removeprefix(f"{public.rpartition('.')[2]}_")):
            found = getattr(home, short, None)
            # Two attributes may return two objects for one C function of PyTorch.
            if found is value or (type(found) is type(value) is types.BuiltinFunctionType and found == value):
                return f"{public}.{short}"
    if owner is not None:
        return f"{owner.__module__}.{owner.__qualname__}.{value.__name__}"
    return f"{module}.{name}" if type(module) is str else name


def short_name(value: Any) -> str:
    """Returns a callable's name for texts that show the line of its call: functions and classes in Python without their module."""
    if is_a(value, (types.FunctionType, type)) or (is_a(value, types.MethodType) and applied(value) is None):
        return str(value.__qualname__)
    return describe(value).removeprefix("builtins.")


def _written_name(value: Any) -> str | None:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if type(name) is not str:
        return None
    return str(value.__name__) if name.startswith(PYBIND) else name


# -- text --------------------------------------------------------------------------------------------------------------
def _of_text(text: str, folder: Path | None) -> Iterator[Selector]:
    if not text:
        raise BadRule("an empty text selects nothing", id="FL211")
    if OPERATOR_TEXT.match(text):
        yield _of_operator_text(text)
    elif "/" in text or text.endswith(".py"):
        yield _of_file_text(text, folder)
    elif WILD.search(text):
        fixed = WILD.split(text)[0].rpartition(".")[0]
        if fixed and not exists(fixed):
            raise BadRule(f"{text!r}: there is no {fixed}", id="FL212")
        # Check the name up to the first wildcard, which may match more than one part of a name.
        begin = WILD.split(text)[0].rpartition(".")[2]
        if fixed and begin and not any(name.startswith(begin) for name in names_in(fixed, begin)):
            raise BadRule(f"{text!r}: nothing in {fixed} begins with {begin!r}", id="FL212")
        yield Selector(GLOB, "glob", ("name", text), text)
    else:
        if not exists(text):
            raise BadRule(f"there is no {text}", id="FL212")
        found = loaded(text)
        name = operator_name(found) if found is not None else None
        if found is not None and name is None and not any(True for _ in stands_for(text)):
            raise BadRule(f"{text} is a value of type {type(found).__name__}, which is never called", id="FL211")
        yield Selector(NAME, "operator", name, text) if name is not None else Selector(NAME, "name", text, text)


def operator_selector(text: str) -> Selector:
    """Returns the selector for an operator's name, or a glob over them, whether any is registered or not."""
    name = text.removeprefix("torch.ops.")
    if "::" not in name:
        # A namespace alone selects all its operators.
        name = name.replace(".", "::", 1) if "." in name else f"{name}::*"
    return Selector(GLOB, "glob", ("operator", name), text) if WILD.search(name) else Selector(NAME, "dispatch", name, text)


def _of_operator_text(text: str) -> Selector:
    selector = operator_selector(text)
    name = selector.key[1] if selector.kind == "glob" else selector.key
    if selector.kind == "glob":
        if not any(fnmatch.fnmatchcase(known, name) or fnmatch.fnmatchcase(known.partition(".")[0], name) for known in registered()):
            raise BadRule(f"no registered operator matches {text!r}", id="FL212")
        return selector
    packet, _, overload = name.partition(".")
    known = [n for n in registered() if n.partition(".")[0] == packet]
    if not known or (overload not in ("", "default") and name not in known):
        raise BadRule(f"no operator {text} is registered", id="FL212")
    return selector


def is_complete(text: str) -> bool:
    """Returns whether the operator or glob ``text`` is in a namespace that is registered already, and to which no library adds."""
    selector = operator_selector(text)
    namespace, _, _ = (selector.key[1] if selector.kind == "glob" else selector.key).partition("::")
    return namespace in COMPLETE and any(name.startswith(f"{namespace}::") for name in registered())


# PyTorch's own namespaces, which are registered all at once.
COMPLETE = ("aten", "prims")


def registered() -> list[str]:
    """Returns the names of all operators that PyTorch's dispatcher knows now, as ``namespace::name.overload``."""
    names: list[str] = torch._C._dispatch_get_all_op_names()
    return names


def exists(dotted: str) -> bool:
    """Returns whether a module, or a name in a module, exists; imports only the packages above it."""
    parts = dotted.split(".")
    if find(dotted)[0]:
        return True
    spec: ModuleSpec | None = None
    for n, part in enumerate(parts):
        module = ".".join(parts[: n + 1])
        package = n == 0 or hasattr(sys.modules.get(".".join(parts[:n])), "__path__") or getattr(spec, "submodule_search_locations", None)
        try:
            # For a name in a module that is not a package, `find_spec` would import the module.
            found = sys.modules[module].__spec__ if module in sys.modules else importlib.util.find_spec(module) if package else None
        except (ImportError, ValueError, AttributeError):
            found = None
        if found is None and module not in sys.modules:
            # Search the source of a module that is not loaded yet, or is being loaded.
            unread = n > 0 and (".".join(parts[:n]) not in sys.modules or bool(getattr(spec, "_initializing", False)))
            return loaded(dotted) is not None or (unread and _in_source(spec, re.escape(part)))
        spec = found
    return True


def _in_source(spec: ModuleSpec | None, name: str) -> bool:
    """Returns whether a module's source contains a name that matches a pattern; True if there is no source."""
    origin = getattr(spec, "origin", None)
    if not origin or not origin.endswith(".py"):
        return True
    text = Path(origin).read_text(encoding="utf-8", errors="replace")
    return re.search(rf"^\s*(?:(?:async\s+)?def|class)\s+{name}\b|\b{name}\b\s*[=:,\n]|import \*", text, re.M) is not None


def names_in(dotted: str, begin: str) -> Iterator[str]:
    """Yields the known names in a module or class, and ``begin`` if another name may begin with it."""
    found = loaded(dotted)
    if found is not None:
        yield from dir(found)
    spec = _module_spec(dotted)
    for info in pkgutil.iter_modules(getattr(spec, "submodule_search_locations", None) or ()):
        yield info.name
    unread = found is None or bool(getattr(spec, "_initializing", False))
    answers = is_a(found, types.ModuleType) and hasattr(found, "__getattr__")
    if answers or (unread and (spec is None or _in_source(spec, rf"{re.escape(begin)}\w*"))):
        yield begin


def _module_spec(dotted: str) -> ModuleSpec | None:
    """Returns the spec of a module without importing it; the packages above it are imported."""
    if dotted in sys.modules:
        return sys.modules[dotted].__spec__
    above = dotted.rpartition(".")[0]
    if above and not getattr(_module_spec(above), "submodule_search_locations", None):
        return None
    try:
        return importlib.util.find_spec(dotted)
    except (ImportError, ValueError, AttributeError):
        return None


def loaded(dotted: str) -> Any:
    """Returns the object of a dotted name if its module is loaded, else None. A name without dots may be a builtin."""
    return find(dotted)[1]


def find(dotted: str) -> tuple[bool, Any, Any]:
    """Looks up a dotted name in the loaded modules; returns whether it exists, its object, and the object that contains it."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        found: Any = sys.modules.get(".".join(parts[:n]))
        if found is None:
            continue
        owner: Any = None
        for part in parts[n:]:
            owner = found
            try:
                # A module may load an attribute when it is read; for other objects, run no code.
                found = getattr(found, part, ABSENT) if is_a(found, types.ModuleType) else inspect.getattr_static(found, part, ABSENT)
            except Exception:
                found = ABSENT
            if found is ABSENT:
                return False, None, None
        return True, found, owner
    return (True, getattr(builtins, dotted), builtins) if hasattr(builtins, dotted) else (False, None, None)


ABSENT = object()


def stands_for(text: str) -> Iterator[Selector]:
    """Yields the selectors, of rank `NAME`, for the object that a dotted name refers to now, wherever it is defined.

    A method that a class inherits is selected for this class only.
    """
    known, found, owner = find(text)
    if not known:
        return
    inherited = is_a(owner, type) and text.rpartition(".")[2] not in vars(owner) and not is_a(found, staticmethod)
    for value in callables(found):
        if is_a(value, types.ModuleType) and not is_a(value, (OpOverloadPacket, _OpNamespace)):
            yield Selector(NAME, "name", value.__name__, text)
            continue
        function = value.__func__ if is_a(value, classmethod) else value
        if function is nn.Module.__call__:
            # A rule for ``__call__`` of a module class is a rule for the class.
            yield of_object(owner)._replace(rank=NAME, text=text)
            continue
        if (is_a(function, types.FunctionType) or function is APPLY) and (inherited or (owner is not None and not is_a(owner, (type, types.ModuleType)))):
            yield Selector(NAME, "method", (Identity(function), Identity(owner)), text)
            continue
        with contextlib.suppress(BadRule):
            yield of_object(value)._replace(rank=NAME, text=text)


# -- files -------------------------------------------------------------------------------------------------------------
def files(pattern: str, folder: Path | None = None) -> Iterator[str]:
    """Yields the files that a pattern selects: of loaded modules first, then below ``folder``, the working directory and ``sys.path``."""
    matches = file_matcher(pattern)
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if type(file) is str and matches(file):
            yield file
    if Path(pattern).is_absolute():
        base = Path(pattern.partition("*")[0])
        yield from map(str, [base] if base.is_file() else base.rglob("*.py") if base.is_dir() else ())
        return
    for root in {folder or Path.cwd(), Path.cwd(), *map(Path, sys.path)}:
        if root.is_dir():
            yield from (str(found) for found in root.glob(pattern.removeprefix("./")) if found.is_file() or any(found.rglob("*.py")))


def _of_file_text(text: str, folder: Path | None) -> Selector:
    """Returns the selector for a file, a folder or a glob over them, however the path is spelled."""
    roots = [root for root in (folder, Path.cwd()) if root is not None]
    pattern = os.path.normpath(text).replace("//", "/")
    if pattern.startswith(".."):
        # The path is relative to a root; it may not begin at any folder.
        outside = [os.path.normpath(root / pattern) for root in roots]
        pattern = next((path for path in outside if any(True for _ in files(path))), outside[0])
    found = list(itertools.islice(files(pattern, folder), MOST_FILES))
    if not found:
        raise BadRule(f"no file matches {text!r}, below {folder or Path.cwd()} or on sys.path", id="FL212")
    wild = WILD.search(pattern) is not None
    is_folder = not wild and not any(Path(file).is_file() for file in found)
    patterns = tuple([f"{path}/**" if is_folder else path for path in (pattern, *_real_paths(pattern, roots))])
    return Selector(GLOB, "glob", ("file", *patterns), text) if wild or is_folder else Selector(FILE, "file", patterns, text)


# The most matches that are checked for being files.
MOST_FILES = 100


def _real_paths(pattern: str, roots: list[Path]) -> Iterator[str]:
    """Yields the real paths of a pattern with symbolic links: code has the path from which it was loaded."""
    parts = pattern.split("/")
    fixed = "/".join(itertools.takewhile(lambda part: not WILD.search(part), parts))
    if not fixed:
        return
    rest = pattern[len(fixed) :]
    for root in dict.fromkeys([Path("/")] if pattern.startswith("/") else [*roots, *map(Path, sys.path)]):
        real = os.path.realpath(root / fixed)
        if real != os.path.join(os.path.realpath(root), fixed.lstrip("/")) and os.path.exists(real):
            yield real + rest


@functools.cache
def file_matcher(pattern: str) -> Callable[[str], bool]:
    """Returns a function that matches files: a pattern may begin at any folder; ``**`` matches folders, ``*`` does not."""
    text = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*\*", ".*").replace(r"\*", "[^/]*").replace(r"\?", "[^/]")
    regex = re.compile(("" if pattern.startswith("/") else "(?:^|.*/)") + text + r"\Z")
    return lambda file: regex.match(file) is not None
