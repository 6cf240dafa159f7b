"""Every refusal: an error with a stable id, the user's place, the reason, and what to do next."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from fineline.refusals import REFUSALS, Refusal
from fineline.stacks import StackPlace, folded, is_library, tells_more, to_the_user


def caller() -> str:
    """Returns the line of the user's code that called into fineline."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "fineline":
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else ""


class Faces:
    """Which class an error is made of: fineline's own, or while `install` holds one that is PyTorch's as well."""

    def __init__(self) -> None:
        self.find: Callable[[type, str | None], type] = lambda cls, id: cls


FACES = Faces()


class FinelineError(Exception):
    """Base of all refusals: what (``id`` and title), ``where``, ``reason``, ``rule``, and what to do next.

    ``where`` is the ``file:line`` that was met; ``stack`` the frames on the way there (file, line, function), the user's call first;
    ``rule`` the text of the rule that decided, if one did. Explanation and next step come from the table unless given.
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
        # Not super(): PyTorch's classes, which may stand between, take other arguments.
        Exception.__init__(self, reason)
        if id is not None:
            self.id = id
        self.reason = reason
        self.where = where
        self.rule = rule
        self.next_step = next_step or self.refusal.next_step
        # Where no frame of the user's is known, those of the call.
        self.stack = stack or (to_the_user() if where and is_library(where) else ())

    @property
    def refusal(self) -> Refusal:
        """Returns the table's entry for this error's id."""
        return REFUSALS[self.id]

    def __str__(self) -> str:
        way = folded(self.stack) if tells_more(self.stack) else []
        lines = [
            ("", f"{self.id}: {self.refusal.title}: {self.reason}"),
            ("at", self.where),
            ("from", "\n        ".join(way)),
            ("why", self.refusal.explanation),
            ("rule", self.rule),
            ("next", self.next_step),
        ]
        return "\n".join(f"  {label + ':':<6}{text}" if label else text for label, text in lines if text)


class Unsupported(FinelineError):
    """The code cannot be captured as the region's options ask."""

    id = "FL101"


class RecompileLimit(Unsupported):
    """A region under ``fullgraph`` has captured as many programs as it may."""

    id = "FL104"


class Recompiled(Unsupported, RuntimeError):
    """A call that no program fits, under the stance "fail_on_recompile"."""

    id = "FL108"


class BackendFailed(FinelineError):
    """A backend raised, or broke its contract; what it raised is the ``__cause__``."""

    id = "FL301"


class BadArgument(FinelineError, TypeError, ValueError):
    """An argument of a fineline function is of no use; both ``except TypeError`` and ``except ValueError`` catch it. ``where``: the call."""

    id = "FL208"

    def __init__(self, reason: str, *, id: str | None = None, where: str | None = None, rule: str | None = None, next_step: str | None = None) -> None:
        super().__init__(reason, id=id, where=caller() if where is None else where, rule=rule, next_step=next_step)


class BadRule(BadArgument):
    """A control rule that can't be: what it selects does not exist, or its verb makes no sense there. ``where``: its declaration."""

    id = "FL211"


class Forbidden(Unsupported):
    """Capture met what a rule forbids."""

    id = "FL105"


class Undeclared(Unsupported):
    """Under ``breaks="declared"``: a graph break that no rule asked for."""

    id = "FL106"


class Constrained(Unsupported):
    """A size that is marked dynamic can have one value only."""

    id = "FL110"


class NotExported(Unsupported, AssertionError):
    """No graph alone does what the call does."""

    id = "FL601"


class InternalError(FinelineError):
    """A check inside fineline failed."""

    id = "FL901"
