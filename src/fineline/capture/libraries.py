"""Functions of libraries that do something else while they are compiled, and not what they do in an eager call: what is captured in their place."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

_CAPTURING = "transformers.utils.output_capturing"


def set_collector(self: Any, value: Any) -> tuple:
    """What is compiled keeps the collector in an attribute; the library's own code forgets the one around it."""
    before = self.global_var, self.compiling
    self.global_var, self.compiling = value, True
    return before


def reset_collector(self: Any, token: Any) -> None:
    if type(token) is tuple:
        self.global_var, self.compiling = token
    elif self.compiling or token is None:
        self.global_var, self.compiling = None, False
    else:
        self.context_var.reset(token)


_STAND_INS: Mapping[tuple[str, str], Callable] = MappingProxyType(
    {
        (_CAPTURING, "CompileableContextVar.set"): set_collector,
        (_CAPTURING, "CompileableContextVar.reset"): reset_collector,
    }
)
NAMES = frozenset(name for _, name in _STAND_INS)


def stand_in(fn: types.FunctionType) -> Callable | None:
    """What is captured in the place of ``fn``."""
    return _STAND_INS.get((fn.__module__ or "", fn.__qualname__)) if fn.__qualname__ in NAMES else None
