"""The outcome of a capture that does not reach its end: why and where it failed, was given up, or was interrupted."""

from __future__ import annotations

from fineline.bytecode.asynchronous import asynchronous
from fineline.frames.frame import Frame
from fineline.frames.graph_breaks import CaptureAborted
from fineline.frames.stub_frames import is_own, user_stack
from fineline.guards.source import Source
from fineline.identity import IdentityMap
from fineline.stacks import StackPlace


class CaptureOutcome:
    """What has ended the capture, if anything has."""

    __slots__ = ("abandoned", "failed_at", "failed_stack", "failure", "interrupt")

    def __init__(self) -> None:
        # Why, and where, the segment was given up: the call goes on uncaptured.
        self.failure: tuple[str, str] | None = None
        self.failed_at: tuple[str, int] = ("", 0)
        self.failed_stack: tuple[StackPlace, ...] = ()
        # Why the whole capture is given up: raised when the user's code has been left.
        self.abandoned: BaseException | None = None
        # What has come from outside: a signal handler or another thread has raised it.
        self.interrupt: BaseException | None = None

    def fail(self, error: str, text: str, f: Frame | None) -> Frame | None:
        """Notes that the segment was given up in ``f``; returns the user's frame there."""
        self.failure = (error, text)
        while f is not None and is_own(f.info.code):
            f = f.back
        if f is not None:
            self.failed_at, self.failed_stack = (f.info.code.co_filename, f.line), user_stack(f)
        return f

    def abandon(self, error: BaseException) -> CaptureAborted:
        """Gives the whole capture up with ``error``; returns what to raise until the user's code has been left."""
        self.abandoned = error
        return CaptureAborted()

    def is_interrupt(self, e: BaseException, sources: IdentityMap[Source]) -> bool:
        """Returns whether ``e`` comes from outside now; what the frames were given, as the exception that they handle, their code raises itself."""
        return e is self.interrupt or (e not in sources and asynchronous(e) is e)
