"""The pause of Python's garbage collector while capture runs the user's code, which ends where that code runs by itself."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
