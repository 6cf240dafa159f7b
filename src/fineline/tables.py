"""Finds the owners and attributes that the tables of callables name; an absent name, and one that others have replaced, gets no row."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from fineline.kinds import is_a

# The packages whose callables the tables describe; the wrappers of deprecated functions are from typing_extensions. A mock is an object of a
# class of the standard library, but stands for anything.
_DESCRIBED = sys.stdlib_module_names.union(("torch", "numpy", "fineline", "typing_extensions")) - {"unittest"}


def is_replaced(value: Any) -> bool:
    """Returns whether ``value``, which a name in a table leads to, is not what the table describes: a mock, or a callable of somebody else's.

    The tables are made at the first call of a compiled function, which may be one under ``unittest.mock.patch``.
    """
    return not {_package(module) for module in _modules_of(value)} <= _DESCRIBED


def _modules_of(value: Any) -> tuple[object, ...]:
    """Returns the names of the modules that define ``value``, and what it is bound to; None for what no module defines."""
    t = type(value)
    if t is FunctionType:
        # `functools.wraps` gives a wrapper the name of the module of what it wraps.
        return value.__module__, value.__globals__.get("__name__")
    if t is MethodType:
        return *_modules_of(value.__func__), type(value.__self__).__module__
    if t is BuiltinFunctionType:
        of = value.__self__
        # Many of PyTorch's functions in C name no module. A method of an object, such as a list's, does not either.
        return () if of is None else (of.__module__ if is_a(of, type) else value.__module__,)
    if t is functools.partial:
        return (None,)
    own = getattr(value, "__module__", None)
    return (own if type(own) is str else t.__module__,)


def _package(module: object) -> str:
    return module.partition(".")[0] if type(module) is str else ""


def imported(path: str) -> Any:
    """Returns a module, or a class in one (``"torch.utils.hooks:BackwardHook"``), if it is imported and exists; else None."""
    module, _, cls = path.partition(":")
    found = sys.modules.get(module)
    return getattr(found, cls, None) if cls else found


def attributes(owner: Any, names: str) -> Iterator[Any]:
    """Yields the attributes that exist, are not None, and are not replaced. ``names``: separated by blanks; ``owner``: an object, or a path for `imported`.

    Names may be absent: notebooks hide `exit` and `quit`, ``python -S`` and frozen programs have none of the `site` builtins,
    hosts may remove others, and a build of PyTorch or NumPy may leave modules and functions out.
    """
    found = imported(owner) if isinstance(owner, str) else owner
    for name in names.split() if found is not None else ():
        if (value := getattr(found, name, None)) is not None and not is_replaced(value):
            yield value
