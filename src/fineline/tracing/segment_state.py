"""PyTorch's own state in a segment: grad mode and the like at its start, random generators, and the changes that the captured code makes."""

from __future__ import annotations

from collections.abc import Callable

from fineline.guards.ambient_table import AMBIENT
from fineline.guards.facts import AmbientFacts
from fineline.torch_facts.random_state import random_states, unmoved
from fineline.torch_facts.thread_state import answers_before


class SegmentState:
    """PyTorch's state at the start of the segment, and the functions that the graph calls to change it."""

    __slots__ = ("answers", "modes", "random", "setters", "start")

    def __init__(self) -> None:
        self.start = AMBIENT.now()
        # The function modes that were on at the start, and that the capture has taken off PyTorch's stack.
        self.modes: list[object] = []
        # The functions that nodes call to change PyTorch's state.
        self.setters: set[object] = set()
        # The results of state queries from before the state was changed.
        self.answers: dict[Callable[..., object], object] = {}
        self.random = random_states()

    def now(self) -> AmbientFacts:
        """Returns PyTorch's state as the captured code has left it so far."""
        return AMBIENT.now()

    def before_change(self, fn: Callable[..., object]) -> None:
        """Notes the results of queries for the state that ``fn`` is about to change."""
        answers_before(fn, self.answers)

    def answer(self, fn: Callable[..., object], now: object) -> object:
        """Returns the result that the query ``fn`` had at the start of the segment. ``now``: its result now."""
        return self.answers.get(fn, now)

    def is_unchanged(self) -> bool:
        """Returns whether the state is as it was at the start."""
        now = AMBIENT.now()
        if self.modes:
            now = now._replace(torch_function_modes=self.start.torch_function_modes, default_device=self.start.default_device)
        return now == self.start

    def drew(self) -> bool:
        """Returns whether a random generator has advanced since the start."""
        return not unmoved(self.random)
