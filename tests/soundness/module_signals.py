"""Random programs of modules that a signal interrupts at a random moment: the exception leaves the call, and later calls are right.

A later call is run twice from the same state: compiled here, and eagerly in a forked child.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from tests.oracle import Observation, Probe, ambient, ambient_kept, compare, compiler_for, random_state
from tests.soundness.freeze import Freezer
from tests.soundness.module_parts import process_kept
from tests.soundness.module_programs import RandomProgram


class Alarm(BaseException):
    """What the handler raises; no program catches it."""


# PyTorch's context managers change its state in these: whoever is interrupted there has it changed, in eager code too.
_CHANGING = frozenset({"__enter__", "__exit__", "__init__"})


class Timer:
    """Raises an `Alarm` in the call that runs when it ends. ``rang``: whether it has; ``lost``: whether Python had to drop the exception."""

    def __init__(self) -> None:
        self.rang = self.lost = self.armed = False

    def ring(self, number: int, frame: FrameType | None) -> None:
        if self.armed:
            self.armed, self.rang = False, True
            raise Alarm

    def drop(self, unraisable: Any) -> None:
        self.lost |= isinstance(unraisable.exc_value, Alarm)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        handler, hook = signal.signal(signal.SIGALRM, self.ring), sys.unraisablehook
        sys.unraisablehook = self.drop
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, handler)
            sys.unraisablehook = hook

    def interrupt(self, call: Callable[[], Any], delay: float) -> BaseException | None:
        """What comes out of a call after ``delay`` seconds, or what it raises before."""
        self.rang = self.lost = False
        self.armed = True
        try:
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))
            call()
            self.armed = False
        except BaseException as error:
            return error
        finally:
            self.armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        return None


def observe(call: Callable[[], Any], given: dict[str, Any], freezer: Freezer) -> Observation:
    result, error, out = None, None, io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = call()
        except Exception as caught:
            error = caught
    world = freezer.moment({"result": result, "raised": error, **given})
    parts = {"random": random_state(), "ambient": ambient(), "world": world, "output": out.getvalue()}
    return Observation(parts, error is not None, error=f"{type(error).__name__}: {error}")


def in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` gives in a forked child, from the state of this moment; None if the child does not end."""
    reader, writer = os.pipe()
    drawn = random.getstate()
    child = os.fork()
    if not child:
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            random.setstate(drawn)  # Python seeds it in a child
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        data = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else None


def interrupted_difference(made: RandomProgram, twin: str) -> tuple[str | None, bool]:
    """What is wrong with a program of which the first calls are interrupted, if anything; whether any was."""
    if made.raw:
        return None, False
    rng, program, timer = random.Random(made.seed), made.program(), Timer()
    with process_kept(), ambient_kept(), contextlib.redirect_stdout(io.StringIO()), timer.running():
        fn, state = program.make()
        target, freezer, reached, longest = compiler_for(twin, Probe())(fn), Freezer(), False, 0.02
        for place, step in enumerate([step for step in program.steps for _ in range(2)]):
            if step.change is not None and place % 2 == 0:
                step.change(state)
            args, kwargs = step.arguments(fn)
            given = {"args": [*args], "kwargs": dict(kwargs), "state": state, "fn": fn}
            if place % 2 == 0:
                before, start = ambient(), time.perf_counter()
                error = timer.interrupt(lambda: target(*args, **kwargs), rng.uniform(0, longest))  # noqa: B023  (called at once)
                longest = max(0.001, min(0.05, 1.2 * (time.perf_counter() - start)))
                if not timer.rang or timer.lost:
                    continue
                reached = True
                if not isinstance(error, Alarm):
                    return f"call {place}: the exception did not leave the call, which gave {error!r}", True
                frames = traceback.extract_tb(error.__traceback__)
                error.__traceback__ = None
                if ambient() != before and not any(frame.name in _CHANGING for frame in frames):
                    changed = {name: (was, ambient()[name]) for name, was in before.items() if was != ambient()[name]}
                    return f"call {place}: PyTorch's state has changed: {changed}\n" + "".join(traceback.format_list(frames)), True
                if ambient() != before:
                    return None, True
            else:
                freezer.moment(given)
                expected = in_child(lambda: observe(lambda: fn(*args, **kwargs), given, freezer))  # noqa: B023  (called at once)
                if expected is None:
                    return f"call {place}: eager code in a forked child does not end", reached
                if found := compare([expected], [observe(lambda: target(*args, **kwargs), given, freezer)]):  # noqa: B023
                    return "\n  ".join([f"call {place}, after an interrupted one (eager != compiled):", *found[:6]]), True
    return None, reached


def fuzz(first: int, programs: int, minutes: float, twins: list[str], generate: Callable[[int], RandomProgram]) -> int:
    """Interrupts random programs, and prints what is wrong; the number of programs where something is."""
    wrong, ran, reached, start = 0, dict.fromkeys(twins, 0), 0, time.monotonic()
    for seed in range(first, first + programs):
        if time.monotonic() - start > 60 * minutes:
            break
        for twin in twins:
            how, interrupted = interrupted_difference(generate(seed), twin)
            ran[twin], reached = ran[twin] + 1, reached + interrupted
            if how is not None:
                wrong += 1
                print(f"--- seed {seed}, twin {twin}\n{how}", flush=True)
    print(f"{ran}; {reached} were interrupted, {wrong} wrong; {time.monotonic() - start:.0f} s")
    return wrong
