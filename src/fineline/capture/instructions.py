"""The table of instruction handlers, filled by the files of the instruction families when they are imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fineline.capture.frame import Frame

Handler = Callable[[Any, Frame, int], Frame | None]
HANDLERS: dict[str, Handler] = {}


def handler(fn: Handler) -> Handler:
    """Registers the handler of the instruction that the function is named after."""
    HANDLERS[fn.__name__] = fn
    return fn
