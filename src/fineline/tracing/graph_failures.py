"""The ways in which a segment's graph may fail at run time: checks of assumed branches, and errors that the user's code handles."""

from __future__ import annotations

from torch import Tensor


class GraphFailures:
    """The assumptions of one segment's graph, and the errors that it may raise instead of the user's code."""

    __slots__ = ("assumed", "caught", "errors", "fragile", "inexact")

    def __init__(self) -> None:
        # Tensors that branches assumed to be true or false; the program checks each.
        self.assumed: list[tuple[Tensor, bool]] = []
        # Whether an operator ran where a handler would have caught its exception.
        self.caught = False
        # Whether one of these may raise because of the numbers in its tensors: its graph must contain only effects that can be undone.
        self.fragile = False
        # The text of a check whose failure in the graph may differ from the user's error.
        self.inexact = ""
        # The exception types that the user's code raises instead of the graph's RuntimeErrors, by text.
        self.errors: dict[str, type[Exception]] = {}

    def expect(self, text: str, error: type[Exception] | None) -> None:
        """Notes that the graph raises a RuntimeError with ``text``. ``error``: the type that the user's code raises instead; None: unknown."""
        if error is None:
            self.inexact = text
        else:
            self.errors[text] = error

    def are_granted(self) -> bool:
        """Returns whether the graph relies on a check at run time."""
        return bool(self.assumed or self.inexact)

    def take_back(self, assumed: int) -> int:
        """Forgets all but the first ``assumed`` assumed branches; returns how many it forgot."""
        taken = len(self.assumed) - assumed
        del self.assumed[assumed:]
        return taken

    def clear(self) -> None:
        self.assumed.clear()
