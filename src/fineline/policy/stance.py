"""The stance of the process: whether calls may be captured, run existing programs only, or run eagerly."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

from fineline.backends.registry import Backend, lookup_backend
from fineline.errors import BadArgument, caller
from fineline.guards.policy_epoch import RULEBOOK

P = ParamSpec("P")
R = TypeVar("R")
NAMES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile", "aot_eager_then_compile")


class Stance(NamedTuple):
    """A stance. ``backend``: the backend that compiles instead of each region's own."""

    name: str
    backend: Backend | None = None
    # The ``file:line`` that set it.
    place: str = ""

    @property
    def key(self) -> object:
        """Returns the key under which a program must have been captured to fit; None if there is no such condition."""
        if self.backend is not None:
            return self.backend.name, id(self.backend.source.source)
        return self.name if self.name == "force_eager" else None


DEFAULT = Stance("default")
HELD = Stance("eager_on_recompile")


class Stances:
    """The process's stance, and the calls of each thread in which nothing is captured (`run`). A hit does not read it."""

    def __init__(self) -> None:
        self._process = DEFAULT
        self._local = threading.local()

    def here(self) -> Stance | None:
        """Returns the stance for a call that no program fits; None if the call is captured."""
        if getattr(self._local, "held", 0):
            return HELD
        return None if self._process is DEFAULT else self._process

    def set(self, stance: Stance) -> Stance:
        """Sets the stance and returns the previous one. Captured code must not call it, because what is captured depends on it."""
        before, self._process = self._process, stance
        RULEBOOK.set_stance(stance.key)
        return before

    def hold(self) -> None:
        """Makes this thread capture nothing until `release`."""
        self._local.held = getattr(self._local, "held", 0) + 1

    def release(self) -> None:
        self._local.held -= 1


STANCES = Stances()


class StanceBlock:
    """Sets a stance at once; as a context manager until the block ends, as a decorator during the function's calls."""

    def __init__(self, stance: Stance) -> None:
        self._stance = stance
        self._before = STANCES.set(stance)

    def __enter__(self) -> None:
        STANCES.set(self._stance)

    def __exit__(self, *exc: object) -> None:
        STANCES.set(self._before)

    def take_back(self) -> None:
        """Restores the previous stance, unless another one has been set since."""
        if STANCES.here() is self._stance:
            STANCES.set(self._before)

    def __call__(self, fn: Callable[P, R]) -> Callable[P, R]:
        STANCES.set(self._before)
        stance = self._stance

        @functools.wraps(fn)
        def with_stance(*args: P.args, **kwargs: P.kwargs) -> R:
            with StanceBlock(stance):
                return fn(*args, **kwargs)

        return with_stance


def set_stance(
    stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: str | Callable | None = None
) -> StanceBlock:
    """Sets how all compiled callables of the process behave; the result is also a context manager and a decorator.

    "default"; "force_eager": they run as if they were not compiled; "eager_on_recompile": existing programs run, other calls
    run eagerly; "fail_on_recompile": existing programs run, other calls raise `Recompiled`; "eager_then_compile" and
    "aot_eager_then_compile": the first call of each runs eagerly, or with backend "aot_eager". ``force_backend``, with
    "default": this backend compiles instead of each one's own. ``skip_guard_eval_unsafe`` is accepted, but fineline always
    evaluates guards. A call in captured code is an error.
    """
    if stance not in NAMES:
        raise BadArgument(f"{stance!r} is not a stance; there are {', '.join(NAMES)}", id="FL207")
    if force_backend is not None and stance != "default":
        raise BadArgument(f'force_backend goes with the stance "default", not with {stance!r}', id="FL207")
    backend = lookup_backend(force_backend) if force_backend is not None else None
    return StanceBlock(DEFAULT if stance == "default" and backend is None else Stance(stance, backend, caller()))
