"""The turns of a compiler's thread beside calls: it works while no call runs, and else for a short part of the time."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Set
from contextlib import contextmanager
from types import FrameType

# Seconds that the thread lets calls run, and that it then works beside them: a twelfth of the time. A call that is shorter than a pause rarely
# meets a turn. The pause has an end because a call may wait for a lock that the thread holds, such as that of an import.
PAUSE, TURN = 0.012, 0.001
# Seconds after which the thread looks again.
LOOK = 0.002


class Turns:
    """Who runs now. Python's switch interval alone would let the thread in at each operator of a call, which gives up the GIL there."""

    def __init__(self) -> None:
        # The threads that run calls. Adding and discarding are single steps, so that a call takes no lock.
        self._calling: set[int] = set()

    def forget(self) -> None:
        """Forgets the calls, in a forked child: it has one thread."""
        self._calling.clear()

    def call(self) -> RunningCall:
        """Lets a block run as a call, beside which the background's threads take turns."""
        return RunningCall(self._calling)

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Has this thread take turns in the block, at each function that it enters or leaves."""
        with self.turn().profiling():
            yield

    def turn(self) -> Turn:
        """Returns the turns of one thread, which takes them where it says so."""
        return Turn(self._calling)


class RunningCall:
    """A block that is a call. No generator, which would set the traceback of the call's exception once more, and a class may see that."""

    __slots__ = ("_calling", "_outer", "_thread")

    def __init__(self, calling: set[int]) -> None:
        self._calling, self._thread = calling, threading.get_ident()

    def __enter__(self) -> None:
        # Whether the thread is in another call around this one, which goes on after it.
        self._outer = self._thread in self._calling
        self._calling.add(self._thread)

    def __exit__(self, *_: object) -> None:
        if not self._outer:
            self._calling.discard(self._thread)


class Turn:
    """The turns of one thread of the background. ``calling``: the threads that run calls."""

    __slots__ = ("_calling", "_ends")

    def __init__(self, calling: Set[int]) -> None:
        self._calling, self._ends = calling, 0.0

    @contextmanager
    def profiling(self) -> Iterator[None]:
        """Takes turns in the block, by a profile function: at each function that this thread enters or leaves.

        Not while the user's code is captured: under a profile function, C passes a dict and not None as the keyword arguments of an override.
        """
        if sys.getprofile() is not None:
            # A profiler that the user has set for all threads.
            yield
            return
        sys.setprofile(self._profile)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, argument: object) -> None:
        self.take()

    def take(self) -> None:
        """Waits for the next turn, if this one is over and a call runs."""
        if not self._calling or time.monotonic() < self._ends:
            return
        pause_ends = time.monotonic() + PAUSE
        while self._calling and time.monotonic() < pause_ends:
            time.sleep(LOOK)
        self._ends = time.monotonic() + TURN
