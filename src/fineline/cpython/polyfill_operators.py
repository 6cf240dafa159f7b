"""The `operator` module in plain Python, for the interpreter to run on values that have special methods of their own."""
# Plain statements: what the shorter forms would call is what is being defined.
# ruff: noqa: SIM113

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from operator import attrgetter, itemgetter, methodcaller
from typing import Any


def iadd(a: Any, b: Any, /) -> Any:
    a += b
    return a


def iand(a: Any, b: Any, /) -> Any:
    a &= b
    return a


def ifloordiv(a: Any, b: Any, /) -> Any:
    a //= b
    return a


def ilshift(a: Any, b: Any, /) -> Any:
    a <<= b
    return a


def imod(a: Any, b: Any, /) -> Any:
    a %= b
    return a


def imul(a: Any, b: Any, /) -> Any:
    a *= b
    return a


def imatmul(a: Any, b: Any, /) -> Any:
    a @= b
    return a


def ior(a: Any, b: Any, /) -> Any:
    a |= b
    return a


def ipow(a: Any, b: Any, /) -> Any:
    a **= b
    return a


def irshift(a: Any, b: Any, /) -> Any:
    a >>= b
    return a


def isub(a: Any, b: Any, /) -> Any:
    a -= b
    return a


def itruediv(a: Any, b: Any, /) -> Any:
    a /= b
    return a


def ixor(a: Any, b: Any, /) -> Any:
    a ^= b
    return a


def concat(a: Any, b: Any, /) -> Any:
    if not hasattr(type(a), "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    return a + b


def iconcat(a: Any, b: Any, /) -> Any:
    if not hasattr(type(a), "__getitem__"):
        raise TypeError(f"'{type(a).__name__}' object can't be concatenated")
    a += b
    return a


def count_of(a: Iterable[Any], b: Any, /) -> int:
    count = 0
    for item in a:
        if item is b or item == b:
            count += 1
    return count


def index_of(a: Iterable[Any], b: Any, /) -> int:
    index = 0
    for item in a:
        if item is b or item == b:
            return index
        index += 1
    raise ValueError("sequence.index(x): x not in sequence")


def setitem(a: Any, b: Any, c: Any, /) -> None:
    a[b] = c


def delitem(a: Any, b: Any, /) -> None:
    del a[b]


def call(obj: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    return obj(*args, **kwargs)


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
