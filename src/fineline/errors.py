"""The errors that fineline raises: each has a stable id, a place in user code, the reason, and the next step."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from fineline.refusals import REFUSALS, Refusal
from fineline.stacks import StackPlace, folded, has_callers, is_library, to_the_user


def caller() -> str:
    """Returns ``file:line`` of the code that called into fineline; empty if there is none.

    :meta private:
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fineline":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


class Faces:
    """Selects the class of an error: fineline's own, or, while `install` is active, a subclass of it and of PyTorch's.

    :meta private:
    """

    def __init__(self) -> None:
        self.find: Callable[[type, str | None], type] = lambda cls, id: cls


FACES = Faces()


class FinelineError(Exception):
    """Base class of fineline's errors: ``id`` (with its title), ``where``, ``reason``, ``rule``, and ``next_step``.

    ``where`` is the ``file:line`` that was refused; ``stack`` contains the frames that lead there (file, line, function), the
    user's call first; ``rule`` is the text of the rule that decided, if any. The explanation, and the next step unless
    passed, come from ``refusals.toml``.
    """

    id = "FL100"

    def __new__(cls, *args: object, id: str | None = None, **kwargs: object) -> FinelineError:
        return super().__new__(FACES.find(cls, id), *args)

    def __init__(
        self,
        reason: str,
        *,
        id: str | None = None,
        where: str | None = None,
        rule: str | None = None,
        next_step: str | None = None,
        stack: tuple[StackPlace, ...] = (),
    ) -> None:
        # Not super(): PyTorch's classes, which may come next in the MRO, take other arguments.
        Exception.__init__(self, reason)
        if id is not None:
            self.id = id
        self.reason = reason
        self.where = where
        self.rule = rule
        self.next_step = next_step or self.refusal.next_step
        # The stack of the call explains a place in a library.
        self.stack = stack or (to_the_user() if where and is_library(where) else ())

    @property
    def refusal(self) -> Refusal:
        """Returns the table's entry for this error's id."""
        return REFUSALS[self.id]

    def __str__(self) -> str:
        frames = folded(self.stack) if has_callers(self.stack) else []
        lines = [
            ("", f"{self.id}: {self.refusal.title}: {self.reason}"),
            ("at", self.where),
            ("from", "\n        ".join(frames)),
            ("why", self.refusal.explanation),
            ("rule", self.rule),
            ("next", self.next_step),
        ]
        return "\n".join(f"  {label + ':':<6}{text}" if label else text for label, text in lines if text)


class Unsupported(FinelineError):
    """The code cannot be captured under the region's options."""

    id = "FL101"


class RecompileLimit(Unsupported):
    """A region under ``fullgraph`` has captured as many programs as it may."""

    id = "FL104"


class Recompiled(Unsupported, RuntimeError):
    """No program fits a call under the stance "fail_on_recompile"."""

    id = "FL108"


class BackendFailed(FinelineError):
    """A backend raised an exception, which is the ``__cause__``, or broke its contract."""

    id = "FL301"


class BadArgument(FinelineError, TypeError, ValueError):
    """An argument of a fineline function is invalid; both ``except TypeError`` and ``except ValueError`` catch it. ``where``: the call."""

    id = "FL208"

    def __init__(self, reason: str, *, id: str | None = None, where: str | None = None, rule: str | None = None, next_step: str | None = None) -> None:
        super().__init__(reason, id=id, where=caller() if where is None else where, rule=rule, next_step=next_step)


class BadRule(BadArgument):
    """A rule is invalid: it selects nothing that exists, or its verb does not apply. ``where``: its declaration."""

    id = "FL211"


class BadLedger(BadArgument):
    """A ledger is wrong, or is not there. ``where``: its file, with the line."""

    id = "FL218"


class BadCaptures(BadArgument):
    """A file of saved captures is refused, or nothing can be saved. ``where``: the file."""

    id = "FL221"


class LedgerDiffers(FinelineError, AssertionError):
    """A call has graph breaks, eager stretches or recompiles that its ledger does not list; the reason names each."""

    id = "FL220"


class Forbidden(Unsupported):
    """A capture reached code that a rule forbids."""

    id = "FL105"


class Undeclared(Unsupported):
    """No rule asked for a graph break under ``breaks="declared"``."""

    id = "FL106"


class Constrained(Unsupported):
    """A size that is marked dynamic can have one value only."""

    id = "FL110"


class RanksDiffer(Unsupported):
    """The processes of a group decide differently in a first call under ``check_ranks``."""

    id = "FL111"


class NotExported(Unsupported, AssertionError):
    """No single graph does what the call does."""

    id = "FL601"


class InternalError(FinelineError):
    """A check inside fineline failed."""

    id = "FL901"
