"""Measures how long each frame of an explained call runs. Only captures that are watched have a clock."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from fineline.report.tree import Node


class CallClock:
    """Adds the time that passes to the node of the frame that runs.

    Its users call `charge` before another frame begins to run, so that all time up to then belongs to the former one.
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        # The callables that return the running node, one for each interpreter and eager call that runs; the innermost counts.
        self._running: list[Callable[[], Node | None]] = []

    def charge(self) -> None:
        """Adds the time since the last charge to the running node."""
        now = time.perf_counter()
        if self._running:
            node = self._running[-1]()
            if node is not None:
                node.seconds += now - self._last
        self._last = now

    @contextlib.contextmanager
    def running(self, node: Callable[[], Node | None]) -> Iterator[None]:
        """Charges the time in the block to the node that ``node`` returns; to none if it returns None."""
        self.charge()
        depth = len(self._running)
        self._running.append(node)
        try:
            yield
        finally:
            self.charge()
            del self._running[depth:]
