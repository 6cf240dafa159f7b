"""What ``__tensor_flatten__`` of a wrapper subclass reads.

A call of it in Python costs a warm call 2 to 7 µs. Guards on what it has read take its place if its code does nothing but read constants and
tensors in attributes of the tensor, constants in attributes of the class, and facts that the guard on every tensor compares.
"""

from __future__ import annotations

import builtins
import enum
from types import FunctionType, MethodType
from typing import Any, NamedTuple, NoReturn

from torch import Tensor

from fineline.bytecode.asynchronous import let_pass
from fineline.bytecode.reading_code import globals_of_reading_code
from fineline.kinds import is_a
from fineline.torch_facts.wrapper_subclasses import ABSENT, Parts, copy_of_constant, is_constant, on_class, same_context

# Functions that do nothing to their arguments but read them, and exceptions: code that raises one does not take the tensor apart.
_BUILTINS = frozenset({"dict", "enumerate", "getattr", "hasattr", "len", "list", "range", "reversed", "tuple", "zip"}) | {
    name for name, value in vars(builtins).items() if is_a(value, type) and issubclass(value, Exception)
}
# Attributes that the guard on every tensor compares.
_COMPARED = frozenset({"device", "dtype", "layout", "requires_grad"})


class AttributeRead(NamedTuple):
    """An attribute that was looked up: its value in the tensor's ``__dict__``, and in the class. `ABSENT`: there is none."""

    name: str
    own: Any
    of_class: Any


class _Unprovable(Exception):
    """Raised where ``__tensor_flatten__`` may depend on something else."""


class _InnerTensor:
    """Takes the place of an inner tensor, of which the code must not ask more than whether it is there."""

    def __getattribute__(self, name: str) -> NoReturn:
        raise _Unprovable

    def __bool__(self) -> NoReturn:
        raise _Unprovable

    def __eq__(self, other: object) -> NoReturn:
        raise _Unprovable

    __hash__ = None  # type: ignore[assignment]


class _Observer:
    """Takes the place of a tensor while its ``__tensor_flatten__`` runs, and notes the attributes that the code looks up."""

    __slots__ = ("__observed",)

    def __init__(self, t: Tensor, reads: dict[str, AttributeRead]) -> None:
        self.__observed = t, reads

    def __getattribute__(self, name: str) -> Any:
        t, reads = object.__getattribute__(self, "_Observer__observed")
        value = _look_up(t, name, reads)
        if type(value) is FunctionType:
            _check(value)
            return MethodType(value, self)
        return _InnerTensor() if is_a(value, Tensor) else copy_of_constant(value)


def _look_up(t: Tensor, name: str, reads: dict[str, AttributeRead]) -> Any:
    """Returns the tensor, the constant or the function in an attribute of ``t``, and notes the read."""
    own, of_class = t.__dict__.get(name, ABSENT), on_class(type(t), name)
    if name in _COMPARED and of_class is on_class(Tensor, name):
        return getattr(t, name)
    if hasattr(type(of_class), "__set__"):
        raise _Unprovable
    reads[name] = AttributeRead(name, own, of_class)
    if own is ABSENT and of_class is ABSENT:
        raise AttributeError(name)
    value = of_class if own is ABSENT else own
    if (is_constant(value) and not _has_code(value)) or (is_a(value, Tensor) if value is own else type(value) is FunctionType):
        return value
    raise _Unprovable


def _has_code(value: Any) -> bool:
    """Returns whether a constant is a member of an enum with code of the user's, or contains one."""
    if is_a(value, (tuple, list, set, frozenset)):
        return any(map(_has_code, value))
    if is_a(value, dict):
        return any([_has_code(x) for pair in value.items() for x in pair])
    if not is_a(value, enum.Enum):
        return False
    own = [x for base in type(value).__mro__ if base.__module__ not in ("enum", "builtins") for x in vars(base).values()]
    answering = [x for x in own if hasattr(type(x), "__get__") and not is_a(x, enum.Enum)]
    # Enum itself puts methods into each class, and, up to Python 3.11, a property without a function for a member.
    return not all([getattr(getattr(x, "fget", None) or getattr(x, "__func__", x), "__module__", "") == "enum" for x in answering]) or not (
        is_constant(value._value_) and not is_a(value._value_, (list, set, dict)) and all([name[0] == "_" for name in vars(value)])
    )


def _check(fn: FunctionType) -> None:
    """Checks that a function does nothing but read its arguments."""
    names = globals_of_reading_code(fn.__code__)
    if names is None or not names <= _BUILTINS or not names.isdisjoint(fn.__globals__) or fn.__defaults__ or fn.__kwdefaults__:
        raise _Unprovable


def attributes_read(t: Tensor, parts: Parts) -> list[AttributeRead] | None:
    """Returns the attributes on which it depends that ``t`` consists of these parts; None if it may depend on more than attributes."""
    cls, reads = type(t), dict[str, AttributeRead]()
    if on_class(cls, "__getattribute__") is not object.__getattribute__:
        return None
    # A class's own guard may take two contexts for one.
    if on_class(cls, "__getattr__") is not ABSENT or on_class(cls, "__metadata_guard__") is not ABSENT:
        return None
    try:
        names, context = _Observer(t, reads).__tensor_flatten__()
        inner = [_look_up(t, name, reads) for name in names]
        same = tuple(names) == parts.names and same_context(parts.context, context)
    except Exception as e:
        let_pass(e)
        return None
    return list(reads.values()) if same and all([x is y for x, y in zip(inner, parts.tensors, strict=True)]) else None
