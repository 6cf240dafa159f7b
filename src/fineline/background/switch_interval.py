"""Python's switch interval, while a compiler runs in a thread."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fineline.tables import attributes

# Seconds after which the compiler's thread lets another one run that wants to. Eager code wants to after each operator.
SHORT = 0.0002


class SwitchInterval:
    """The interval of the process. One thread at a time shortens it."""

    def __init__(self) -> None:
        # The interval before it was shortened, and as it is now; empty if it is not shortened.
        self._changed: tuple[float, ...] = ()
        # A forked child has not the thread that would put it back.
        for register in attributes(os, "register_at_fork"):  # Windows has no fork
            register(after_in_child=self._put_back)

    @contextmanager
    def shortened(self) -> Iterator[None]:
        """Shortens the interval in the block: calls in other threads would wait for 5 ms at each of their operators."""
        before = sys.getswitchinterval()
        sys.setswitchinterval(min(before, SHORT))
        self._changed = before, sys.getswitchinterval()
        try:
            yield
        finally:
            self._put_back()

    def _put_back(self) -> None:
        if self._changed and sys.getswitchinterval() == self._changed[1]:
            sys.setswitchinterval(self._changed[0])
        self._changed = ()


SWITCHES = SwitchInterval()
