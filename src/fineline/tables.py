"""Finds the owners and attributes that the tables of callables name; an absent name, and one that others have replaced, gets no row."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from fineline.kinds import is_users_class

# The packages whose functions the tables describe; the wrappers of deprecated functions are from typing_extensions. A mock is an object of a
# class of the standard library, but stands for anything.
_DESCRIBED = sys.stdlib_module_names.union(("torch", "numpy", "fineline", "typing_extensions")) - {"unittest"}


def is_replaced(value: Any) -> bool:
    """Returns whether ``value``, which a name in a table leads to, is not what the table describes: a mock, or somebody's wrapper.

    The tables are made at the first call of a compiled function, which may be one under ``unittest.mock.patch``.
    """
    if type(value) is FunctionType:
        # `functools.wraps` gives a wrapper the name of the module of what it wraps.
        return not {_package(value.__module__), _package(value.__globals__.get("__name__"))} <= _DESCRIBED
    cls = type(value)
    return is_users_class(cls) and type(cls.__call__) is FunctionType and _package(cls.__module__) not in _DESCRIBED


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
