"""The captures that wait for a thread, and the threads that make them: one after the other, each in a new thread.

PyTorch's state belongs to a thread, and a capture changes it: a thread that ends with the capture leaves nothing behind.
"""

from __future__ import annotations

import atexit
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from fineline.background.work_queue import Stopped, WorkQueue, end_thread


class CaptureJob:
    """A capture to make, in the context of the call after which it is queued."""

    def __init__(self, capture: Callable[[], None], cancel: Callable[[], None]) -> None:
        """``capture`` makes it, and raises nothing but `Stopped`. ``cancel``: called if no thread can make it."""
        self.cancel = cancel
        # None once it has been made: it keeps the arguments of the call alive, and the thread keeps the job for a moment longer.
        self._capture: Callable[[], None] | None = capture
        self._context = contextvars.copy_context()

    def run(self) -> None:
        try:
            if self._capture is not None:
                self._context.run(self._capture)
        finally:
            self._capture = None


class CaptureQueue(WorkQueue):
    """The captures of the process. A forked child has none: the regions forget theirs (`region.capture_state`)."""

    def _renew(self) -> None:
        super()._renew()
        self._jobs: deque[CaptureJob] = deque()
        self._running: CaptureJob | None = None

    def add(self, job: CaptureJob) -> None:
        """Queues a capture."""
        with self._changed:
            if self._ends:
                return
            self._jobs.append(job)
            self._go_on()

    def _go_on(self) -> None:
        """Starts the thread of the next capture, unless one runs."""
        if self._running is not None:
            return
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
                job.cancel()
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
                    self._running = None
                    self._go_on()

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
        end_thread(thread, interrupts=True)
