"""The turns of a compiler's thread beside calls: it works while no call runs, and else for a short part of the time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

# Seconds that the thread lets calls run, and that it then works beside them: a fifth of the time. A call that is shorter than a pause rarely
# meets a turn. The pause has an end because a call may wait for a lock that the thread holds, such as that of an import.
PAUSE, TURN = 0.016, 0.004
# Seconds after which the thread looks again.
LOOK = 0.0005


class Turns:
    """Who runs now. Python's switch interval alone would let the thread in at each operator of a call, which gives up the GIL there."""

    def __init__(self) -> None:
        # The threads that run calls. Adding and discarding are single steps, so that a call takes no lock.
        self._calling: set[int] = set()
        self._turn_ends = 0.0

    def forget(self) -> None:
        """Forgets the calls, in a forked child: it has one thread."""
        self._calling.clear()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Lets the block run as a call, beside which the compiler's thread takes turns."""
        thread = threading.get_ident()
        self._calling.add(thread)
        try:
            yield
        finally:
            self._calling.discard(thread)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Has this thread take turns in the block, at each function that it enters or leaves."""
        if sys.getprofile() is not None:
            # A profiler that the user has set for all threads.
            yield
            return
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, argument: object) -> None:
        if not self._calling or time.monotonic() < self._turn_ends:
            return
        pause_ends = time.monotonic() + PAUSE
        while self._calling and time.monotonic() < pause_ends:
            time.sleep(LOOK)
        self._turn_ends = time.monotonic() + TURN
