"""The ways in which a segment's graph may fail when it runs: checks of branches taken for granted, and errors that the user's code handles."""

from __future__ import annotations

from torch import Tensor


class GraphFailures:
    """What the graph of one segment takes for granted, and the errors that it may raise in the place of the user's code."""

    __slots__ = ("assumed", "caught", "errors", "fragile", "inexact")

    def __init__(self) -> None:
        # Tensors that branches took for true or false; the program checks each.
        self.assumed: list[tuple[Tensor, bool]] = []
        # An operator was run where an exception would have met a handler.
        self.caught = False
        # ... one that may raise for the numbers in its tensors: nothing that can't be undone may be in the graph with it.
        self.fragile = False
        # Why an error of the graph's may not be that of the user's code.
        self.inexact = ""
        # What the user's code raises in the place of the graph's RuntimeErrors: the types, by their texts.
        self.errors: dict[str, type[Exception]] = {}

    def expect(self, text: str, error: type[Exception] | None) -> None:
        """Notes that the graph raises a RuntimeError with ``text``. ``error``: what the user's code raises in its place; None: unknown."""
        if error is None:
            self.inexact = text
        else:
            self.errors[text] = error

    def are_granted(self) -> bool:
        """Returns whether the graph relies on a check in it."""
        return bool(self.assumed or self.inexact)

    def take_back(self, assumed: int) -> int:
        """Forgets all but the first ``assumed`` branches that were taken for granted; returns how many these were."""
        taken = len(self.assumed) - assumed
        del self.assumed[assumed:]
        return taken

    def clear(self) -> None:
        self.assumed.clear()
