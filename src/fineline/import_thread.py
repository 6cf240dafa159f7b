"""A call apart: on a thread of its own, on whose stack nothing of the user's lies.

PyTorch imports large parts of itself when they are first needed (``torch._dynamo`` at a process's first ``ShapeEnv``), and some of
those imports leave their frames behind in cycles. Each frame holds the one that called it: until a garbage collection the
model that was being captured stays alive.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

from torch.fx.experimental.symbolic_shapes import ShapeEnv

T = TypeVar("T")
# Seconds. A module of the user's that is being imported, and that such an import asks for, is waited for by nobody then:
# Python notices when two threads wait for each other's imports, and goes on with the module as far as it is.
LONGEST = 60.0


def apart(fn: Callable[[], T]) -> T:
    """Returns what ``fn()`` returns or raises."""
    out: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            out.append(fn())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="fineline-import", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        # The process has as many threads as it may, or is about to end.
        return fn()
    thread.join(LONGEST)
    if errors:
        raise errors.pop()
    return out[0] if out else fn()


@functools.cache
def shapes_imported() -> None:
    """Imports what ``ShapeEnv`` needs, before one is made."""
    apart(ShapeEnv)
