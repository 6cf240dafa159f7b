"""One lock for the process around PyTorch's tracers: fake mode, AOTAutograd and Inductor keep state that threads share.

A thread holds the lock while it captures on fake tensors, while a backend compiles, and for each operator that a capture on
real tensors tries on fakes. It does not hold the lock while user code runs for real (a capture on real tensors, an eager call,
a call of an existing program), nor after a graph break. User code that runs under the lock (a custom backend, a fake
implementation) may wait for another thread that compiles; therefore waiting has a limit.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, TypeVarTuple

from fineline.tables import attributes

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TracersBusy(Exception):
    """Another thread has held the lock for longer than a thread waits."""


class TracerLock:
    """The lock; a thread that holds it may take it again."""

    # Seconds to wait. Inductor takes minutes for a large graph.
    longest = 300.0

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # Whether a thread of fineline's own holds it, which compiles in the background.
        self.is_held_in_background = False
        # A forked child has none of the threads that may hold it.
        for register in attributes(os, "register_at_fork"):  # Windows has no fork
            register(after_in_child=self._renew)

    def _renew(self) -> None:
        self._lock = threading.RLock()
        self.is_held_in_background = False

    def holding_in_background(self, fn: Callable[[], T]) -> T:
        """Returns ``fn()``, called while a thread of fineline's own holds the lock."""
        return self.holding(self._marked, fn)

    def _marked(self, fn: Callable[[], T]) -> T:
        self.is_held_in_background = True
        try:
            return fn()
        finally:
            self.is_held_in_background = False

    def holding(self, fn: Callable[[*Ts], T], *args: *Ts) -> T:
        """Returns ``fn(*args)``, called while this thread holds the lock; raises `TracersBusy` if the lock is not free in time."""
        lock, taken = self._lock, list[bool]()
        try:
            # One C call: no asynchronous exception can occur between taking the lock and recording it.
            taken.extend(map(lock.acquire, (True,), (self.longest,)))
            if not taken[0]:
                raise TracersBusy(f"another thread has been compiling for over {self.longest:.0f} s")
            return fn(*args)
        finally:
            if taken and taken[0]:
                lock.release()


TRACERS = TracerLock()


@contextmanager
def without_collections() -> Iterator[None]:
    """Lets no garbage be collected in the block, which reads the state of a random generator.

    PyTorch holds the generator's lock while it makes the tensor with the state. A collection at that moment may close a Python generator that
    a capture has run, which reads the state too: the thread would wait for itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
