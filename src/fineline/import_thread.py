"""Runs an import on a thread of its own, whose stack contains no user frames.

PyTorch imports large parts of itself when they are first needed (``torch._dynamo`` at a process's first ``ShapeEnv``), and
some of those imports leave their frames in reference cycles. Each frame holds its caller, so the model that is being
captured would stay alive until a garbage collection.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import TypeVar

from torch.fx.experimental.symbolic_shapes import ShapeEnv

T = TypeVar("T")
# Seconds to wait. If the import needs a module that the calling thread is importing, both threads wait. After this time the
# calling thread imports too; Python then detects the deadlock and uses the partly initialized module.
LONGEST = 60.0


def apart(fn: Callable[[], T]) -> T:
    """Calls ``fn()`` on a thread of its own, or here if there is none in time; returns its result or raises its exception."""
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
        # The process cannot start another thread, or is about to end.
        return fn()
    thread.join(LONGEST)
    if errors:
        raise errors.pop()
    return out[0] if out else fn()


@functools.cache
def shapes_imported() -> None:
    """Makes a ``ShapeEnv`` on another thread, so that the modules it needs are imported before the first real one."""
    apart(ShapeEnv)
