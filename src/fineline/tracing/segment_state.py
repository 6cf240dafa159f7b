"""PyTorch's own state in a segment: grad mode and the like where it starts, random generators, and what the captured code changes of it."""

from __future__ import annotations

from collections.abc import Callable

from fineline.guards.facts import AMBIENT
from fineline.torch_facts.random_state import random_states, unmoved
from fineline.torch_facts.thread_state import answers_before


class SegmentState:
    """The state that PyTorch was in where the segment started, and the functions that the graph calls to change it."""

    __slots__ = ("answers", "random", "setters", "start")

    def __init__(self) -> None:
        self.start = AMBIENT.now()
        # The functions that nodes call to change PyTorch's state.
        self.setters: set[object] = set()
        # What a function that reads PyTorch's state said before that was changed.
        self.answers: dict[Callable[..., object], object] = {}
        self.random = random_states()

    def before_change(self, fn: Callable[..., object]) -> None:
        """Notes what functions say of a state that ``fn`` is about to change."""
        answers_before(fn, self.answers)

    def answer(self, fn: Callable[..., object], now: object) -> object:
        """Returns what a function that reads PyTorch's state said at the start; ``now``: what it says now."""
        return self.answers.get(fn, now)

    def is_unchanged(self) -> bool:
        """Returns whether the state is as it was at the start."""
        return AMBIENT.now() == self.start

    def drew(self) -> bool:
        """Returns whether something random has been asked for since."""
        return not unmoved(self.random)
