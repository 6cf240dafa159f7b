"""One lock for the process around PyTorch's tracers: fake mode, AOTAutograd and Inductor keep state that threads share.

A thread holds it while it captures on fake tensors, while a backend compiles, and for each operator that a capture on real tensors
tries on fakes. It holds it neither while the user's code runs for real (a capture on real tensors, an eager stretch, the call of a
program that exists), nor after a graph break. Code of the user's that does run under it (a backend of his own, a fake implementation)
may wait for another thread that compiles; so nobody waits for ever.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from fineline.tables import attributes

T = TypeVar("T")


class TracersBusy(Exception):
    """Another thread has held the lock for as long as anybody waits."""


class TracerLock:
    """The lock; a thread that holds it may take it again."""

    # Seconds. Inductor takes minutes for a large graph.
    longest = 300.0

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # A forked child has none of the threads that may hold it.
        for register in attributes(os, "register_at_fork"):  # Windows has no fork
            register(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()

    def holding(self, fn: Callable[..., T], *args: Any) -> T:
        """Returns what ``fn(*args)`` does while this thread holds the lock; raises `TracersBusy` if it can't be had."""
        lock, taken = self._lock, list[bool]()
        try:
            # One call into C: no exception from outside can come between the lock and the note of it.
            taken.extend(map(lock.acquire, (True,), (self.longest,)))
            if not taken[0]:
                raise TracersBusy(f"another thread has been compiling for over {self.longest:.0f} s")
            return fn(*args)
        finally:
            if taken and taken[0]:
                lock.release()


TRACERS = TracerLock()
