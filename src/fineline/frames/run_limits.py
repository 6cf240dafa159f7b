"""The depth of a run's calls and the length of its loops, with the limits of both, and the turns of a run beside other code."""

from __future__ import annotations

import sys

from fineline.background.turns import Turn

# Up to this depth the recursion limit is not read, because counting the frames below the region is slow.
SHALLOW = 50


class RunLimits:
    """Counts the frames of a run and the iterations of its loops."""

    __slots__ = ("depth", "jumps", "max_depth", "turn")

    def __init__(self) -> None:
        self.depth = 0
        self.max_depth = SHALLOW
        # The jumps backwards since the last tensor operator.
        self.jumps = 0
        # The turns of the thread, if it runs beside calls: it takes them where it enters a function, and before operators.
        self.turn: Turn | None = None

    def check_depth(self) -> None:
        """Raises `RecursionError` where eager code would: captured code adds no frames to Python's stack."""
        self.max_depth = max(sys.getrecursionlimit() - frames_below(), SHALLOW)
        if self.depth > self.max_depth:
            raise RecursionError("maximum recursion depth exceeded")


def frames_below() -> int:
    """Returns how many Python frames are running outside of the interpreter."""
    n, f = 0, sys._getframe(1)
    while f is not None:
        n += 1
        f = f.f_back  # type: ignore[assignment]
    return n
