"""Python's switch interval, while a compiler runs in a thread."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds after which the compiler's thread lets another one run that wants to. Eager code wants to after each operator.
SHORT = 0.0002


@contextmanager
def short_interval() -> Iterator[None]:
    """Shortens the interval in the block: calls in other threads would wait for 5 ms at each of their operators."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SHORT))
    ours = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:
            sys.setswitchinterval(before)
