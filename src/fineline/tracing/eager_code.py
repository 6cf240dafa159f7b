"""Code that runs under an interpreter and is not captured, and the pause of Python's garbage collector, which ends in it."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.report.operator_counter import OPEN


class Pause:
    """A capture makes many small objects and few cycles: a collection in the middle finds nothing and costs up to 10 %."""

    def __init__(self) -> None:
        self._threshold: int | None = None

    def begin(self) -> None:
        # Not with gc.disable(): the code that runs may ask for that, or say it.
        self._threshold = gc.get_threshold()[0]
        gc.set_threshold(0)

    def end(self) -> None:
        if self._threshold is not None and not gc.get_threshold()[0]:
            gc.set_threshold(self._threshold)
        self._threshold = None

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Ends the pause in a block with code that may read the threshold, or run for long."""
        paused = self._threshold is not None
        self.end()
        try:
            yield
        finally:
            if paused:
                self.begin()


class EagerCode:
    """What runs eagerly now, and what its operators are to the capture."""

    __slots__ = ("call_out", "computing", "frame", "outside", "pause", "result", "resumes", "stubs")

    def __init__(self, call_out: Callable | None = None) -> None:
        """Sets up the state. ``call_out`` takes the calls that ``frame`` makes."""
        self.call_out = call_out
        # A frame under disable(recursive=False).
        self.frame: Frame | None = None
        # The result of a graph break and where it goes: delivering it may run into the next graph break, or raise.
        self.result: tuple[Any, Delivery | None] | None = None
        # While a call runs natively, at a graph break: what its operators are, for the tally.
        self.outside = ""
        # An operator of fineline's own runs: none of the user's.
        self.computing = False
        # Whether the host captures again where a block ends in which nothing was captured.
        self.resumes = False
        self.pause = Pause()
        # Functions that stand for the user's frames on Python's own stack.
        self.stubs: dict = {}

    def fate(self, captures: bool) -> str:
        """Returns what an operator that runs now is to the capture; "": none of the user's."""
        if self.computing:
            return ""
        if self.outside or self.resumes:
            return self.outside or "skipped"
        return OPEN if captures else "eager"
