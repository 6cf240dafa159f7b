"""What the two queues of the background have in common: the lock, blocks in which nothing begins, and the end of a thread."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fineline.background.turns import Turns
from fineline.tables import attributes

# Seconds that the end of the interpreter waits for a thread.
LAST = 5.0


class Stopped(BaseException):
    """Ends a thread of the background, because the interpreter ends."""


class WorkQueue:
    """A queue whose jobs threads of the background do beside calls, with which they take ``turns``."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        # Whether the interpreter ends.
        self._ends = False
        self._renew()
        for register in attributes(os, "register_at_fork"):  # Windows has no fork
            register(after_in_child=self._forked)

    def _renew(self) -> None:
        """Makes the queue empty."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        # How many blocks let no job begin.
        self._held = 0

    def _forked(self) -> None:
        """Makes the queue one without a thread, in a forked child."""
        self._renew()

    def _go_on(self) -> None:
        """Goes on after a block in which nothing begins; the caller holds the lock."""
        self._changed.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets no job begin in the block."""
        with self._changed:
            self._held += 1
        try:
            yield
        finally:
            with self._changed:
                self._held -= 1
                self._go_on()


def end_thread(thread: threading.Thread | None, interrupts: bool) -> None:
    """Waits for the end of a thread. ``interrupts``: whether it is at work, and gets an exception that ends the work."""
    if thread is None or not thread.is_alive():
        return
    if interrupts and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
    # A thread that runs while the interpreter is taken down may end the process in PyTorch's C++ code.
    thread.join(LAST)
