"""The graphs that wait for their compilers, and the thread that compiles one after the other."""

from __future__ import annotations

import atexit
import importlib
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from fineline.background.capture_queue import CaptureQueue
from fineline.background.graph_job import GraphJob, Outcome
from fineline.background.turns import RunningCall, Turns
from fineline.background.work_queue import Stopped, WorkQueue, end_thread
from fineline.import_thread import LateModule
from fineline.report.logs import LOGS

if TYPE_CHECKING:
    from fineline.background import compilation, compile_process, progress
else:
    # The compilers' modules take a second to import.
    compilation = LateModule("fineline.background.compilation")
    compile_process = LateModule("fineline.background.compile_process")
    progress = LateModule("fineline.background.progress")

# Seconds after which a thread without work ends.
IDLE = 10.0
# Seconds that a job waits for a call that captures: its later graphs cannot be captured beside a compiler. The call may be a whole training.
DELAY = 5.0


Report = Callable[[str, str], AbstractContextManager[None]]


class CompileQueue(WorkQueue):
    """The jobs of the process. Its thread is started at the first job."""

    def __init__(self) -> None:
        # Started when a backend of fineline's own can use it.
        self.process: compile_process.CompileProcess | None = None
        self._lost: list[GraphJob] = []
        # What reports a long compile on a terminal.
        self._report: Report | None = None
        super().__init__(Turns())

    def _renew(self) -> None:
        super()._renew()
        self._jobs: deque[GraphJob] = deque()
        self._running: GraphJob | None = None
        # Whether a compiler runs in the thread, and not only imports.
        self._compiles = False
        # The threads that run calls which are captured.
        self._capturing: set[int] = set()
        self.turns.forget()

    def _forked(self) -> None:
        # The child has no thread of the parent's, but its programs wait for the same jobs: the first call of one queues it again.
        self._lost = [job for job in (self._running, *self._jobs, *self._lost) if job is not None]
        for job in self._lost:
            job.renew()
        self._renew()
        if self.process is not None:
            self.process.leave()

    def add(self, job: GraphJob) -> None:
        """Queues a job, unless it is queued or done."""
        with self._changed:
            if job.queued or job.outcome is not None or self._ends:
                return
            self._jobs.append(job)
            job.queued = True
            if self._thread is None:
                self._start()
            self._changed.notify_all()

    def capturing(self) -> CapturingCall:
        """Lets a block run as a call that is captured: no job begins in it that has waited for less than `DELAY`."""
        return CapturingCall(self._capturing, self._look_again)

    def _look_again(self) -> None:
        """Has the thread look for a job that may begin."""
        with self._changed:
            self._changed.notify_all()

    def _start(self) -> None:
        if self._report is None:
            self._report = _terminal_report()
        thread = threading.Thread(target=self._work, name="fineline-compile", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The process cannot start another thread, or is about to end: calls stay as they are.
            return
        self._thread = thread
        atexit.unregister(self.stop)
        atexit.register(self.stop)

    def wait(self, timeout: float | None = None) -> bool:
        """Waits until no job is left, or for ``timeout`` seconds; returns whether none is left."""
        lost, self._lost = self._lost, []
        for job in lost:
            self.add(job)
        with self._changed:
            return self._changed.wait_for(self._is_empty, timeout)

    def _is_empty(self) -> bool:
        return self._running is None and not any([job.is_wanted for job in self._jobs])

    # -- the thread ----------------------------------------------------------------------------------------------------
    def _work(self) -> None:
        # It may arrive when the compiler has just ended.
        with suppress(Stopped), self.turns.taken():
            self._compile_jobs()

    def _compile_jobs(self) -> None:
        while (job := self._next()) is not None:
            outcome = Outcome()
            try:
                # Here, and not on a thread of their own, which would take no turns: no user's frames are below.
                for module in ("compilation", "compile_process"):
                    importlib.import_module(f"fineline.background.{module}")
                if self.process is None:
                    self.process = compile_process.CompileProcess()
                compile_job = compilation.compiled
                with (self._report or _no_report)(job.name, job.where):
                    self._compiles = True
                    outcome = compile_job(job, self.process)
            except BaseException as e:
                outcome = Outcome(error=e)
            finally:
                self._compiles = False
                self._done(job, outcome)

    def _next(self) -> GraphJob | None:
        """Returns the next job that a program waits for; None if the thread is to end."""
        with self._changed:
            while not self._ends:
                while self._jobs and not self._held and self._delay <= 0:
                    job = self._jobs.popleft()
                    if job.is_wanted:
                        self._running = job
                        return job
                self._changed.notify_all()
                if not self._changed.wait(self._delay if self._jobs and not self._held else IDLE) and not self._jobs:
                    break
            self._thread = None
            return None

    @property
    def _delay(self) -> float:
        """Returns the seconds for which the next job still waits for calls that capture."""
        return self._jobs[0].made_at + DELAY - time.monotonic() if self._capturing else 0.0

    def _done(self, job: GraphJob, outcome: Outcome) -> None:
        if outcome.error is not None and not self._ends:
            LOGS.log.error("fineline: %s: compiling %s in the background failed: %s", job.where, job.name, outcome.error)
        with self._changed:
            job.end(outcome)
            self._running = None
            self._changed.notify_all()

    def stop(self) -> None:
        """Ends the thread and the process: the interpreter ends."""
        with self._changed:
            self._ends = True
            self._jobs.clear()
            thread, running = self._thread, self._running
            self._changed.notify_all()
        if self.process is not None:
            self.process.kill()
        end_thread(thread, interrupts=running is not None and self._compiles)


class CapturingCall(RunningCall):
    """A block that is a call which is captured. ``ended``: tells the queue of its end."""

    __slots__ = ("_ended",)

    def __init__(self, capturing: set[int], ended: Callable[[], None]) -> None:
        super().__init__(capturing)
        self._ended = ended

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._ended()


def _no_report(name: str, where: str) -> AbstractContextManager[None]:
    return nullcontext()


def _terminal_report() -> Report:
    """Returns what reports a long compile: on a terminal, or nowhere."""
    if sys.stderr is None or not sys.stderr.isatty():
        return _no_report
    # The import of rich draws a random number. It is made here, in the thread of a call, because a thread that runs beside calls cannot put it back.
    state = random.getstate()
    try:
        return progress.shown
    finally:
        random.setstate(state)


QUEUE = CompileQueue()
CAPTURES = CaptureQueue(QUEUE.turns)
"""Their captures queue graphs in the other queue."""
