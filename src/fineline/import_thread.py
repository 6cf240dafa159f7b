"""Imports that are made when they are needed, on a thread of its own, whose stack contains no user frames.

PyTorch imports large parts of itself when they are first needed (``torch._dynamo`` at a process's first ``ShapeEnv``), and
some of those imports leave their frames in reference cycles. Each frame holds its caller, so the model that is being
captured would stay alive until a garbage collection. The thread also has none of the caller's modes, profilers and recursion.

The modules with public names import in 0.07 s. They refer to the modules of the engine, which take 0.9 s, by late modules: the first capture
imports them.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections.abc import Callable
from types import ModuleType
from typing import TypeVar

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


class LateModule:
    """Stands for a module, which is imported when one of its names is first read.

    The block ``if TYPE_CHECKING`` beside it imports the module itself: type checkers, and the test of the layers, read that.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._module: ModuleType | None = None

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            # Only tools that inspect the namespace of a module read such names.
            raise AttributeError(f"{self!r} has no attribute {name!r}", name=name, obj=self)
        if self._module is None:
            self._module = apart(functools.partial(importlib.import_module, self._name))
        return getattr(self._module, name)

    def __repr__(self) -> str:
        return f"<late module {self._name!r}>"


@functools.cache
def shapes_imported() -> None:
    """Makes a ``ShapeEnv`` on another thread, so that the modules it needs are imported before the first real one."""
    apart(_shape_env)


def _shape_env() -> object:
    return importlib.import_module("torch.fx.experimental.symbolic_shapes").ShapeEnv()
