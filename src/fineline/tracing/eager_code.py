"""Code that runs eagerly under an interpreter, and the pause of Python's garbage collector, which such code ends."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import Delivery
from fineline.report.operator_counter import OPEN


class Pause:
    """Pauses garbage collection: a capture makes many small objects and few cycles, so that a collection costs up to 10 % and frees nothing."""

    def __init__(self) -> None:
        self._threshold: int | None = None

    def begin(self) -> None:
        # Without gc.disable(): the user's code may call it, or query whether it was called.
        self._threshold = gc.get_threshold()[0]
        gc.set_threshold(0)

    def end(self) -> None:
        if self._threshold is not None and not gc.get_threshold()[0]:
            gc.set_threshold(self._threshold)
        self._threshold = None

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """Ends the pause for a block whose code may read the threshold, or run for long."""
        paused = self._threshold is not None
        self.end()
        try:
            yield
        finally:
            if paused:
                self.begin()


class EagerCode:
    """The code that runs eagerly now, and how the operators in it are counted."""

    __slots__ = ("call_out", "computing", "frame", "outside", "pause", "result", "resumes", "stubs")

    def __init__(self, call_out: Callable | None = None) -> None:
        """Sets up the state. ``call_out`` handles the calls that ``frame`` makes."""
        self.call_out = call_out
        # A frame under disable(recursive=False).
        self.frame: Frame | None = None
        # The result of a graph break and its delivery, which may reach the next graph break, or raise.
        self.result: tuple[Any, Delivery | None] | None = None
        # The class of the operators in a call that runs eagerly at a graph break, for the operator counts.
        self.outside = ""
        # Whether fineline itself runs an operator, which is not counted.
        self.computing = False
        # Whether the host starts to capture again after a block in which nothing was captured.
        self.resumes = False
        self.pause = Pause()
        # Functions that stand for the user's frames on Python's own stack.
        self.stubs: dict = {}

    def fate(self, captures: bool) -> str:
        """Returns the class in which an operator that runs now is counted; "": it is not one of the user's."""
        if self.computing:
            return ""
        if self.outside or self.resumes:
            return self.outside or "skipped"
        return OPEN if captures else "eager"
