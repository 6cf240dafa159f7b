"""Descriptors that read and set the C fields of an exception, without the attribute hooks of its class."""

from __future__ import annotations

from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_FIELDS = BaseException.__dict__
# Each with ``__get__(error)`` and ``__set__(error, value)``.
CONTEXT: GetSetDescriptorType = _FIELDS["__context__"]
CAUSE: GetSetDescriptorType = _FIELDS["__cause__"]
TRACEBACK: GetSetDescriptorType = _FIELDS["__traceback__"]
SUPPRESS_CONTEXT: MemberDescriptorType = _FIELDS["__suppress_context__"]
ARGS: GetSetDescriptorType = _FIELDS["args"]
DICT: GetSetDescriptorType = _FIELDS["__dict__"]
STOP_VALUE: MemberDescriptorType = StopIteration.__dict__["value"]
NAME: MemberDescriptorType = AttributeError.__dict__["name"]
OBJ: MemberDescriptorType = AttributeError.__dict__["obj"]


def under(handled: BaseException, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Calls ``fn`` while ``handled`` is the exception in ``sys.exc_info()``."""
    tb, ctx = TRACEBACK.__get__(handled), CONTEXT.__get__(handled)
    try:
        raise handled
    except BaseException:
        TRACEBACK.__set__(handled, tb)
        CONTEXT.__set__(handled, ctx)
        return fn(*args, **kwargs)


def error_text(error: BaseException) -> str:
    """Formats an exception for messages: type and text, or only the type if the text would run user code."""
    name = type(error).__name__
    args = ARGS.__get__(error)
    plain = type(error).__str__ in _OWN_TEXTS and all([type(a) in (str, int, float, bool, type(None)) for a in args])
    return f"{name}: {error}" if plain else name


_OWN_TEXTS = frozenset(cls.__dict__["__str__"] for cls in (BaseException, OSError, KeyError, ImportError, SyntaxError, UnicodeDecodeError))
