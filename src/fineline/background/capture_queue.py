"""The captures that wait for a thread of their own, and the threads that make them: one after the other, each in a new thread.

PyTorch's state belongs to a thread, and a capture changes it: a thread that ends with the capture leaves nothing behind.
"""

from __future__ import annotations

import atexit
import contextvars
import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fineline.background.turns import Turns
from fineline.tables import attributes

# Seconds that the end of the interpreter waits for a capture.
LAST = 5.0


class Stopped(BaseException):
    """Ends a thread of the background, because the interpreter ends."""


class CaptureJob:
    """A capture to make, in the context of the call after which it is queued."""

    def __init__(self, capture: Callable[[], None], renew: Callable[[], None]) -> None:
        """``capture`` makes it, and raises nothing. ``renew``: called in a forked child, which has no thread that would make the capture."""
        self.renew = renew
        # None once it has been made: it keeps the arguments of the call alive, and the thread keeps the job for a moment longer.
        self._capture: Callable[[], None] | None = capture
        self._context = contextvars.copy_context()

    def run(self) -> None:
        try:
            if self._capture is not None:
                self._context.run(self._capture)
        finally:
            self._capture = None


class CaptureQueue:
    """The captures of the process."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._ends = False
        self._renew()
        for register in attributes(os, "register_at_fork"):  # Windows has no fork
            register(after_in_child=self._forked)

    def _renew(self) -> None:
        self._changed = threading.Condition()
        self._jobs: deque[CaptureJob] = deque()
        self._thread: threading.Thread | None = None
        self._running: CaptureJob | None = None
        # How many blocks let no capture begin.
        self._held = 0

    def _forked(self) -> None:
        lost = [job for job in (self._running, *self._jobs) if job is not None]
        self._renew()
        for job in lost:
            job.renew()

    def add(self, job: CaptureJob) -> None:
        """Queues a capture."""
        with self._changed:
            if self._ends:
                return
            self._jobs.append(job)
            if self._running is None:
                self._start()

    def _start(self) -> None:
        """Starts the thread of the next capture, if there is one."""
        self._running = self._jobs.popleft() if self._jobs and not self._ends and not self._held else None
        if self._running is None:
            self._changed.notify_all()
            return
        self._thread = threading.Thread(target=self._work, args=(self._running,), name="fineline-capture", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            # The process cannot start another thread, or is about to end: a later call plans another capture.
            for job in (self._running, *self._jobs):
                job.renew()
            self._jobs.clear()
            self._running = None
            self._changed.notify_all()
            return
        atexit.unregister(self.stop)
        atexit.register(self.stop)

    def _work(self, job: CaptureJob) -> None:
        # What stops it may arrive when it has just ended.
        with suppress(Stopped):
            try:
                job.run()
            finally:
                with self._changed:
                    self._start()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lets no capture begin in the block."""
        with self._changed:
            self._held += 1
        try:
            yield
        finally:
            with self._changed:
                self._held -= 1
                if self._running is None:
                    self._start()

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no capture is left, or for ``timeout`` seconds; returns whether none is left."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None and not self._jobs, timeout)

    def stop(self) -> None:
        """Ends the thread: the interpreter ends."""
        with self._changed:
            self._ends = True
            self._jobs.clear()
            thread = self._thread
        if thread is None or not thread.is_alive():
            return
        if thread.ident is not None:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped))
        # A thread that runs while the interpreter is taken down may end the process in PyTorch's C++ code.
        thread.join(LAST)
