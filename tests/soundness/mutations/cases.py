"""What a case of the guard mutation table is made of: a table that takes each name once, changes with their reverts, what many cases read."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch

Case = Callable[[], tuple[Any, Any, Any]]
X = torch.arange(6.0).reshape(2, 3) + 1
_GONE: Any = object()


class Cases(dict[str, Case]):
    """Functions that make a case, by name."""

    def __setitem__(self, name: str, make: Case) -> None:
        assert name not in self, name
        super().__setitem__(name, make)

    def add(self, make: Case) -> Case:
        self[make.__name__] = make
        return make


# -- changes -----------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def attr(obj: Any, name: str, value: Any = _GONE) -> Iterator[None]:
    """``obj.name = value`` (or ``del``); back to what was there, or was not, in the object's own dict."""
    old = vars(obj).get(name, _GONE)
    delattr(obj, name) if value is _GONE else setattr(obj, name, value)
    try:
        yield
    finally:
        delattr(obj, name) if old is _GONE else setattr(obj, name, old)


@contextlib.contextmanager
def item(d: Any, key: Any, value: Any = _GONE) -> Iterator[None]:
    old = dict(d) if isinstance(d, dict) else list(d)
    if value is _GONE:
        del d[key]
    else:
        d[key] = value
    try:
        yield
    finally:
        if isinstance(d, dict):
            if key in old and value is not _GONE:
                d[key] = old[key]
            else:
                d.clear()
                d.update(old)
        else:
            d[:] = old


@contextlib.contextmanager
def doing(do: Callable[[], object], undo: Callable[[], object]) -> Iterator[None]:
    do()
    try:
        yield
    finally:
        undo()


def binding(scope: dict[str, Any], name: str, value: Any = _GONE) -> Any:
    """``name = value`` (or ``del name``) in a namespace, where the name goes to the end when it comes back."""
    old = scope.get(name, _GONE)
    if value is _GONE:
        return doing(lambda: scope.pop(name), lambda: scope.__setitem__(name, old))
    return doing(lambda: scope.__setitem__(name, value), lambda: scope.pop(name) if old is _GONE else scope.__setitem__(name, old))


def argument(fn: Any, before: Any, after: Any) -> tuple[Any, Any, Any]:
    """The second argument is ``after`` instead of ``before``."""
    s = SimpleNamespace(v=before)
    return fn, lambda: (X, s.v), attr(s, "v", after)


def arguments(fn: Any, before: tuple, after: tuple) -> tuple[Any, Any, Any]:
    s = SimpleNamespace(v=before)
    return fn, lambda: s.v, attr(s, "v", after)


def made(fn: Any, before: Callable[[], tuple], after: Callable[[], tuple]) -> tuple[Any, Any, Any]:
    """All arguments are made anew for each call."""
    s = SimpleNamespace(v=before)
    return fn, lambda: s.v(), attr(s, "v", after)


def attr_class(obj: Any, cls: type) -> Any:
    old = type(obj)
    return doing(lambda: setattr(obj, "__class__", cls), lambda: setattr(obj, "__class__", old))


def attr_name(obj: Any, name: str, value: str) -> Any:
    old = getattr(obj, name)
    return doing(lambda: setattr(obj, name, value), lambda: setattr(obj, name, old))


def attr_dict(obj: Any, value: dict) -> Any:
    old = obj.__dict__
    return doing(lambda: setattr(obj, "__dict__", value), lambda: setattr(obj, "__dict__", old))


def bases(cls: type, *new: type) -> Any:
    old = cls.__bases__
    return doing(lambda: setattr(cls, "__bases__", new), lambda: setattr(cls, "__bases__", old))


@contextlib.contextmanager
def setting(fn: Any, value: Any, old: Any) -> Iterator[None]:
    fn(value)
    try:
        yield
    finally:
        fn(old)


# -- what many cases read ----------------------------------------------------------------------------------------------
class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 2
    HIGH = 3


def double(x: Any) -> Any:
    return x * 2


def triple(x: Any) -> Any:
    return x * 3


class Doubler:
    factor = 2

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Tripler:
    factor = 3

    def __call__(self, x: Any) -> Any:
        return x * self.factor


class Base:
    scale = 2

    def method(self, x):
        return x * self.scale

    @property
    def prop(self):
        return 2

    @staticmethod
    def static(x):
        return x * 2

    @classmethod
    def klass(cls, x):
        return x * cls.scale


def classes() -> tuple[type, type]:
    base = type("Base", (), {k: v for k, v in vars(Base).items() if k not in ("__dict__", "__weakref__")})
    return base, type("Child", (base,), {})
