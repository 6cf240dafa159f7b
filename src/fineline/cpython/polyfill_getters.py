"""Calls of the `operator` module's getters in plain Python, for the interpreter to run on values with special methods in Python."""

from __future__ import annotations

import functools
from operator import attrgetter, itemgetter, methodcaller
from typing import Any


def attrgetter_call(self: attrgetter[Any], obj: Any, /) -> Any:
    names = attrgetter.__reduce__(self)[1]
    if len(names) == 1:
        return _attribute(obj, names[0])
    values = []
    for name in names:
        values.append(_attribute(obj, name))
    return tuple(values)


def _attribute(obj: Any, path: str) -> Any:
    for name in path.split("."):
        obj = getattr(obj, name)
    return obj


def itemgetter_call(self: itemgetter[Any], obj: Any, /) -> Any:
    keys = itemgetter.__reduce__(self)[1]
    if len(keys) == 1:
        return obj[keys[0]]
    values = []
    for key in keys:
        values.append(obj[key])
    return tuple(values)


def methodcaller_call(self: methodcaller, obj: Any, /) -> Any:
    made = methodcaller.__reduce__(self)
    if made[0] is methodcaller:
        names: Any = made[1]
        return getattr(obj, names[0])(*names[1:])
    factory: functools.partial[Any] = made[0]  # type: ignore[assignment]
    return getattr(obj, factory.args[0])(*made[1], **factory.keywords)
