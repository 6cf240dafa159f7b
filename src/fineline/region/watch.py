"""The observation of a region's captures, for explain and reports of whole programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fineline.interp.interpreter import Interpreter
from fineline.report.operator_counter import OperatorCounts
from fineline.report.recording import Recording
from fineline.report.tree import Node
from fineline.tracing.interp import CaptureHost, InterpreterOptions
from fineline.tracing.lessons import Lessons


@dataclass(frozen=True)
class Watch:
    """The interpreters and counts of a watched region; by default nothing is watched."""

    # Makes the interpreters: those of a watched region keep a tree of their calls.
    interpreter: Callable[[InterpreterOptions, Lessons, CaptureHost], Interpreter] = Interpreter
    # Counts operators.
    tally: OperatorCounts | None = None
    # Returns the tree of calls so far, if listeners get it.
    tree: Callable[[], Node] | None = None
    # Notes times, and the costs of guards and graph breaks.
    recording: Recording | None = None

    def of_alike(self) -> Watch:
        """Returns the watch of another region, whose calls are part of this one's."""
        return Watch(self.interpreter, self.tally and self.tally.of_another(), recording=self.recording)


UNWATCHED = Watch()
