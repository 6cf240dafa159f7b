"""Handlers of instructions: one function for each, with the instruction's name, in files by family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from fineline.frames.frame import Frame

Handler = Callable[[Any, Frame, int], Frame | None]


def family(names: Mapping[str, Any], **more: Handler) -> Mapping[str, Handler]:
    """Returns the handlers among a file's names, and ``more`` handlers that a function has created."""
    return MappingProxyType({k: v for k, v in names.items() if k.isupper() and callable(v)} | more)
