"""The outcome of a capture that does not reach its end: why and where it failed, was aborted, or was interrupted."""

from __future__ import annotations

from fineline.bytecode.asynchronous import asynchronous
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import CaptureAborted
from fineline.frames.stub_frames import is_own, user_stack
from fineline.guards.source import Source
from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.stacks import StackPlace


class CaptureOutcome:
    """The reason why the capture ended early, if it did."""

    __slots__ = ("abandoned", "failed_at", "failed_stack", "failure", "interrupt")

    def __init__(self) -> None:
        # Why and where capture of the segment failed: the call continues uncaptured.
        self.failure: tuple[str, str] | None = None
        self.failed_at: tuple[str, int] = ("", 0)
        self.failed_stack: tuple[StackPlace, ...] = ()
        # Why the whole capture is aborted: raised after the user's code has been left.
        self.abandoned: BaseException | None = None
        # An exception from outside, which a signal handler or another thread raised.
        self.interrupt: BaseException | None = None

    def fail(self, error: str, text: str, f: Frame | None) -> Frame | None:
        """Notes that capture of the segment failed in ``f``; returns the user's frame there."""
        self.failure = (error, text)
        while f is not None and is_own(f.info.code):
            f = f.back
        if f is not None:
            self.failed_at, self.failed_stack = (f.info.code.co_filename, f.line), user_stack(f)
        return f

    def abandon(self, error: BaseException) -> CaptureAborted:
        """Aborts the whole capture with ``error``; returns the exception to raise until the user's code has been left."""
        self.abandoned = error
        return CaptureAborted()

    def is_interrupt(self, e: BaseException, sources: IdentityMap[Source]) -> bool:
        """Returns whether ``e`` arrived from outside during the capture. An exception with a source does not count: captured code re-raises it."""
        # An abort looks like a class that another thread raises: it has no arguments, and it leaves the user's frames.
        return e is self.interrupt or (e not in sources and not is_a(e, CaptureAborted) and asynchronous(e) is e)
