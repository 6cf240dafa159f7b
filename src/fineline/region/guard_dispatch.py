"""The dispatcher, which replaces a compiled region's function: it tries guard programs and calls the target of the one that hits."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, NamedTuple

from fineline.guards.evaluate import ReferenceProgram
from fineline.guards.native_core import CORE, FAILURE, NativeCore
from fineline.guards.steps import Step
from fineline.refusals import REFUSALS

Evaluator = Literal["native", "reference"]
Entry = tuple[int, tuple[str, ...], Any, Callable[..., Any]]
Miss = Callable[[tuple[Any, ...], dict[str, Any]], Any]
Failed = Callable[[BaseException, Any], None]
# A type, and a function: if a target's result is a pair whose first item has that type, the function computes the call's result from it.
Finish = tuple[type, Callable[[Any], Any]]

log = logging.getLogger("fineline")


class Handlers(NamedTuple):
    """The functions that a dispatcher calls: where no entry fits, where a target fails, and where its result is to be finished."""

    miss: Miss
    failed: Failed | None = None
    finish: Finish | None = None


Load = Callable[[], Handlers]


class ReferenceDispatcher:
    """Tries the entries that fit the shape of a call, the last hit first; calls ``miss(args, kwargs)`` if none hits.

    If a target's result is a pair whose first item has the type in ``finish``, the function there computes the call's result, when nothing
    here refers to the target's arguments. If either raises, ``failed(error, guard_program)`` is called before the error leaves.
    With ``load``, the first call of ``miss`` calls ``load()``, which returns the handlers.
    """

    def __init__(self, handlers: Handlers | None, load: Load | None = None) -> None:
        self._handlers, self._load = handlers, load
        # The entries and the position of the last hit change together, in one assignment, so that a call in
        # another thread sees either the old pair or the new one.
        self._state: tuple[tuple[Entry, ...], list[int]] = ((), [0])

    def set_entries(self, entries: Iterable[Entry]) -> None:
        """Replaces all entries; running calls continue with the entries they started with."""
        checked = tuple(entries)
        for nargs, kwnames, program, _ in checked:
            if program is not None and program.n_roots != nargs + len(kwnames):
                raise ValueError(f"the guard program takes {program.n_roots} roots, the call has {nargs + len(kwnames)}")
        self._state = (checked, [0])

    @property
    def entries(self) -> list[Entry]:
        return list(self._state[0])

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        entries, last = self._state
        shape = (len(args), tuple(kwargs))
        roots = (*args, *kwargs.values())
        recent = last[0]
        order = [recent, *[i for i in range(len(entries)) if i != recent]] if entries else []
        for index in order:
            nargs, kwnames, program, target = entries[index]
            if (nargs, kwnames) != shape:
                continue
            outputs = roots if program is None else program.check(roots)
            if outputs is not None:
                last[0] = index
                try:
                    result = target(*outputs)
                    outputs = None
                    return self._finished(result)
                except BaseException as error:
                    if self._handlers is not None and self._handlers.failed is not None:
                        self._handlers.failed(error, program)
                    raise
        if self._handlers is None:
            assert self._load is not None
            self._handlers = self._load()
        return self._handlers.miss(args, kwargs)

    def _finished(self, result: Any) -> Any:
        finish = self._handlers.finish if self._handlers is not None else None
        if finish is None or type(result) is not tuple or len(result) != 2 or type(result[0]) is not finish[0]:
            return result
        return finish[1](result)


def make_guard_program(n_roots: int, steps: Iterable[Step], outputs: Sequence[int], evaluator: Evaluator = "native") -> Any:
    """Returns a guard program for one of the two evaluators; both have ``check``, ``failing``, ``steps`` and ``outputs``."""
    core = _native_core() if evaluator == "native" else None
    if core is not None:
        return core.GuardProgram(n_roots, tuple(steps), tuple(outputs))
    return ReferenceProgram(n_roots, steps, outputs)


def make_dispatcher(miss: Miss, evaluator: Evaluator = "native", failed: Failed | None = None, finish: Finish | None = None) -> Any:
    """Returns a dispatcher for the guard programs of one evaluator."""
    core = _native_core() if evaluator == "native" else None
    if core is not None:
        return core.Dispatcher(miss, failed, finish)
    return ReferenceDispatcher(Handlers(miss, failed, finish))


def make_deferred_dispatcher(load: Load, evaluator: Evaluator = "native") -> Any:
    """Returns a dispatcher that gets its handlers from ``load()`` at its first call. Its region is made then."""
    core = _native_core() if evaluator == "native" else None
    if core is not None:
        return core.Dispatcher(load=load)
    return ReferenceDispatcher(None, load)


@functools.cache
def _native_core() -> NativeCore | None:
    """Returns the native core if it is used; warns once if it is not."""
    if CORE is None:
        refusal = REFUSALS["FL903"]
        log.warning("fineline: FL903: %s (%s). %s %s", refusal.title, FAILURE, refusal.explanation, refusal.next_step)
    return CORE
