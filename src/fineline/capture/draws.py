"""Python's random numbers: a method that draws some is one call at a graph break, and its own loops are no code to capture."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import FunctionType, MappingProxyType
from typing import Any

from fineline.capture.frame import Frame
from fineline.capture.signals import Border


def _draw(vm: Any, f: Frame, fn: Any, args: list, kwargs: Any, then: Any, data: Any) -> Frame | None:
    if vm.cap.active:
        raise Border(fn, tuple(args), kwargs, "FL410", f"{fn.__qualname__} draws random numbers").to(then, data)
    return vm.finish(f, vm.native(fn, tuple(args), kwargs), then, data)


SPECIALS: Mapping[Any, Callable] = MappingProxyType(
    {
        fn: _draw
        for cls in (random.Random, random.SystemRandom)
        for name, fn in vars(cls).items()
        if type(fn) is FunctionType and not name.startswith("__")
    }
)
"""All that the two classes define in Python: it depends on a state that each call changes, and so is walked anew each time."""
