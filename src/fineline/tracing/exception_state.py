"""The exceptions of a run: the one that is being handled, its context, and the tracebacks of those that pass the user's frames."""

from __future__ import annotations

from fineline.exception_slots import CONTEXT
from fineline.tracing.tracebacks import Traces


class ExceptionState:
    """Does for interpreted frames what CPython does by itself when an exception is raised and handled."""

    __slots__ = ("handled", "traces")

    def __init__(self) -> None:
        # What ``sys.exception()`` gives to the user's code.
        self.handled: BaseException | None = None
        self.traces = Traces()

    def chain(self, e: BaseException, anew: bool) -> None:
        """Sets the implicit context of ``e``, which an instruction has raised; ``anew``: as its ``raise`` statement does, also if it has one."""
        handled = self.handled
        if handled is None or e is handled or not (anew or CONTEXT.__get__(e) is None):
            return
        link: BaseException = handled
        while (inner := CONTEXT.__get__(link)) is not None:
            if inner is e:
                CONTEXT.__set__(link, None)
                break
            link = inner
        CONTEXT.__set__(e, handled)
