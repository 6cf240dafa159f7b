"""The state of a region's capture in progress: its lock and thread, and the notes of one attempt for the next."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any

from fineline.background.capture_queue import CaptureJob

# How often a capture is tried in the background while the user's code changes what it reads. The next one waits.
MOST_TRIES = 3


class BackgroundCapture:
    """The capture in the background that is planned or under way, and those that were in vain."""

    def __init__(self) -> None:
        self._job: CaptureJob | None = None
        self.forget()

    def forget(self) -> None:
        # The tries that were in vain; and whether only a call that waits can be captured, because its code has effects or graph breaks.
        self._tries, self._waits = 0, False

    @property
    def is_pending(self) -> bool:
        """Returns whether a capture is planned or under way: until it ends, calls that fit no program run eagerly."""
        return self._job is not None

    @property
    def may_succeed(self) -> bool:
        """Returns whether another try may succeed."""
        return not self._waits and self._tries < MOST_TRIES

    def begin(self, job: CaptureJob) -> None:
        self._job = job

    def end(self) -> None:
        self._job = None

    def fail(self, for_good: bool) -> None:
        """Notes that a try was in vain. ``for_good``: whether others would be, too."""
        self._tries += 1
        self._waits = for_good


class CaptureState:
    """One thread at a time captures calls of a region; other threads run theirs eagerly meanwhile."""

    def __init__(self) -> None:
        self._renew()
        # The thread that captures. Captures of one region may be nested: what begins one puts back the value of before.
        self.thread: int | None = None
        # An exception from outside that has interrupted a capture, and is leaving it.
        self._interrupt: BaseException | None = None
        # Calls that the user's caches have counted in an attempt that restarts; the next attempt does not make them again.
        self._cached_calls: list[tuple[Any, Any]] = []
        # Whether a call runs eagerly because its code has prepared what later calls find.
        self._prepared = False
        self.background = BackgroundCapture()
        _ALL.add(self)

    # -- the lock ------------------------------------------------------------------------------------------------------
    def _renew(self) -> None:
        self._lock = threading.RLock()
        # A function in C: a function in Python would look for exceptions from outside before it frees the lock.
        self.unlock = self._lock.release

    def try_lock(self, locked: list[bool]) -> None:
        """Appends to ``locked`` whether this thread has got the lock.

        Does not wait for it: user code runs under the lock, so that a wait for another capturing thread could be a deadlock.
        """
        # One call into C, so that no exception from outside can come between the lock and its note.
        locked.extend(map(self._lock.acquire, (False,)))

    @property
    def is_locked_here(self) -> bool:
        """Returns whether this thread holds the lock."""
        return self._lock._is_owned()  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def after_fork(self) -> None:
        """Frees the lock in a forked child, which has no other thread that could, and forgets the capture that one has planned or makes."""
        self._renew()
        self.thread = None
        self.background.end()

    # -- the thread ----------------------------------------------------------------------------------------------------
    @property
    def is_in_this_thread(self) -> bool:
        """Returns whether this thread captures a call of the region."""
        return self.thread == threading.get_ident()

    def begin(self) -> None:
        self.thread = threading.get_ident()

    # -- from one attempt to the next ----------------------------------------------------------------------------------
    def interrupt(self, error: BaseException) -> None:
        """Notes that an exception from outside ends the capture."""
        self._interrupt = error

    def was_interrupted_by(self, error: BaseException) -> bool:
        """Returns whether ``error`` is the exception from outside that ended the latest capture, and forgets that exception."""
        found, self._interrupt = error is self._interrupt, None
        return found

    def leave_cached_calls(self, calls: list[tuple[Any, Any]]) -> None:
        """Passes the calls that caches have counted to the next attempt."""
        self._cached_calls = calls

    def take_cached_calls(self) -> list[tuple[Any, Any]]:
        calls, self._cached_calls = self._cached_calls, []
        return calls

    def note_preparation(self) -> None:
        """Notes that a call runs eagerly because its code has prepared what later calls find, such as a table: it is captured after that."""
        self._prepared = True

    def take_preparation(self) -> bool:
        """Returns whether that was noted, and forgets it."""
        found, self._prepared = self._prepared, False
        return found


# The states of all regions of the process: a forked child does not have the threads that may hold their locks.
_ALL: weakref.WeakSet[CaptureState] = weakref.WeakSet()


def _forked() -> None:
    for state in list(_ALL):
        state.after_fork()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_forked)
