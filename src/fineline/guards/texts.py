"""Formats values for messages: in the user's words, without addresses, and without running user code."""

from __future__ import annotations

import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

import torch

from fineline.kinds import is_a
from fineline.numpy_support import np

# Types whose texts C writes, and which describe the whole value.
_PLAIN = (
    type(None), bool, int, float, complex, bytes, bytearray, range, type(Ellipsis), type(NotImplemented), torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.Size, np.dtype, np.generic,
)  # fmt: skip
_BRACKETS: Mapping[type, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}", deque: "[]"}
_DICTS = frozenset({dict, OrderedDict, defaultdict, types.MappingProxyType})
_BASES: tuple = (int, float, str, bytes)
_FUNCTIONS = (types.FunctionType, torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip
# The most items that are shown of a container, and the most levels of containers in it.
_MOST_ITEMS, _DEEPEST = 8, 2


def value_text(value: object, most: int = 80) -> str:
    """Returns a text for a value, of at most ``most`` characters."""
    text = _text(value, _DEEPEST, most)
    return text if len(text) <= most else text[: most - 3] + "..."


def _text(value: Any, depth: int, most: int) -> str:
    t = type(value)
    if t is str:
        return repr(value if len(value) <= most else value[:most])
    if t in _PLAIN or is_a(value, np.generic):
        return _number(value) if t is int else repr(value)
    if is_a(value, type):
        return str(type.__dict__["__qualname__"].__get__(value))
    if is_a(value, Enum):
        name = value.__dict__.get("_name_")
        return f"{t.__qualname__}.{name}" if name else f"{t.__qualname__}({_text(value.__dict__.get('_value_'), depth, most)})"
    if is_a(value, slice):
        return f"slice({', '.join([_text(part, depth, most) for part in (value.start, value.stop, value.step)])})"
    if t in _BRACKETS:
        return _items(_BRACKETS[t], value, depth, most)
    if t in _DICTS:
        return _pairs(value, depth, most)
    for base in _BASES:
        if is_a(value, base):
            # Its value as the base type, without the methods of its own class.
            return f"{t.__qualname__}({_text(base.__pos__(value) if base in (int, float) else base.__getitem__(value, slice(None)), depth, most)})"
    return _object(value, t)


def _number(value: int) -> str:
    # Python refuses to convert longer ones to text.
    return repr(value) if value.bit_length() < 1000 else f"an int of {value.bit_length()} bits"


def _items(brackets: str, value: Iterable[object], depth: int, most: int) -> str:
    items = list(value)
    if depth == 0 and items:
        return f"{_a(type(value))} of {len(items)}"
    texts = [_text(item, depth - 1, most) for item in items[:_MOST_ITEMS]] + ["..."] * (len(items) > _MOST_ITEMS)
    if not items and brackets == "{}":
        return f"{type(value).__name__}()"
    comma = "," if brackets == "()" and len(items) == 1 else ""
    return f"{brackets[0]}{', '.join(texts)}{comma}{brackets[1]}"


def _pairs(value: Any, depth: int, most: int) -> str:
    if len(value) > _MOST_ITEMS or (depth == 0 and value):
        return f"{_a(type(value))} of {len(value)}"
    return "{" + ", ".join([f"{_text(k, depth - 1, most)}: {_text(v, depth - 1, most)}" for k, v in value.items()]) + "}"


def _object(value: Any, t: type) -> str:
    if is_a(value, _DESCRIPTORS):
        return f"{value.__objclass__.__qualname__}.{value.__name__}"
    if is_a(value, types.ModuleType):
        return f"module {value.__dict__.get('__name__', '?')}"
    if is_a(value, types.MethodType):
        return f"method {getattr(value.__func__, '__qualname__', '?')} of {_object_or_class(value.__self__)}"
    if is_a(value, types.BuiltinFunctionType) and not is_a(value.__self__, (types.ModuleType, type(None))):
        return f"method {value.__name__} of {_object_or_class(value.__self__)}"
    if is_a(value, types.BuiltinFunctionType):
        return f"function {value.__name__}"
    if is_a(value, _FUNCTIONS):
        return f"function {getattr(value, '__qualname__', '') or getattr(value, '__name__', '?')}"
    if is_a(value, functools.partial):
        return f"a partial of {_object(value.func, type(value.func))}"
    return _a(t)


def _object_or_class(value: object) -> str:
    return f"class {value.__qualname__}" if is_a(value, type) else _a(type(value))


def _a(t: type) -> str:
    name = t.__qualname__.rpartition("<locals>.")[2]
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
