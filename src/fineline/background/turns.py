"""The turns that threads take in running Python code, while a compiler runs in one of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Seconds after which the compiler's thread lets another one run that wants to. Eager code wants to after each operator.
TURN = 0.0002


@contextmanager
def polite() -> Iterator[None]:
    """Makes the turns of threads short in the block: calls in other threads would wait for 5 ms at each of their operators."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, TURN))
    ours = sys.getswitchinterval()
    try:
        yield
    finally:
        if sys.getswitchinterval() == ours:
            sys.setswitchinterval(before)
