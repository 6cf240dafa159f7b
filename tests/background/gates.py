"""Backends that a test lets go on when it has seen enough."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from fineline.background.queue import CAPTURES

# Seconds after which a test is wrong.
LONGEST = 60.0


def captured(compiled: Callable[..., Any], *args: Any) -> Any:
    """Calls ``compiled``, and waits until the call is captured, but not for its graph; returns the result of the call."""
    out = compiled(*args)
    assert CAPTURES.wait(LONGEST)
    return out


class Gate:
    """A backend that compiles once ``open`` has been called; ``error``: what it raises then instead."""

    def __init__(self, error: BaseException | None = None, inside: Callable[[Any, list], Any] | None = None) -> None:
        self.error, self.inside = error, inside or (lambda gm, examples: None)
        self.began, self.may_go = threading.Event(), threading.Event()
        self.graphs, self.runs = 0, 0
        self.examples: list[Any] = []
        self.threads: list[str] = []

    def open(self) -> None:
        self.may_go.set()

    def __call__(self, gm: Any, examples: list[Any]) -> Callable:
        self.graphs += 1
        self.threads.append(threading.current_thread().name)
        self.examples = [(type(t).__name__, tuple(t.shape)) for t in examples]
        self.began.set()
        assert self.may_go.wait(LONGEST)
        made = self.inside(gm, examples)
        if self.error is not None:
            raise self.error

        def run(*args: Any) -> Any:
            self.runs += 1
            return (made or gm.forward)(*args)

        return run
