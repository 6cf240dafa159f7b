"""The turns of the compiler's thread: it works while no call runs, and in a call that is long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fineline.background import turns
from fineline.background.turns import Turns

LONG = 60.0


class Compiler:
    """A thread that takes turns, and counts the functions that it enters."""

    def __init__(self) -> None:
        self.turns = Turns()
        self.entered = 0
        self.ends = False
        self.held = threading.Lock()
        self.holds = threading.Event()
        self.thread = threading.Thread(target=self._work)

    def _work(self) -> None:
        with self.turns.taken():
            while not self.ends:
                self._step()

    def _step(self) -> None:
        with self.held:
            self.holds.set()
            self.entered += 1

    def steps(self, timeout: float) -> bool:
        """Returns whether the thread takes a hundred steps more. Takes no lock: the thread may pause while it holds one."""
        first, ends = self.entered, time.monotonic() + timeout
        while self.entered <= first + 100 and time.monotonic() < ends:
            time.sleep(0.001)
        return self.entered > first + 100


@contextmanager
def running(compiler: Compiler) -> Iterator[Compiler]:
    compiler.thread.start()
    try:
        yield compiler
    finally:
        compiler.ends = True
        compiler.thread.join()


def test_the_thread_works_while_no_call_runs(monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", LONG)
    with running(Compiler()) as compiler:
        assert compiler.steps(LONG)
        with compiler.turns.call():
            # It ends what it is at: not one function more, for as long as the pause.
            compiler.steps(0.1)
            assert not compiler.steps(0.2)
        assert compiler.steps(LONG)


def test_a_long_call_leaves_turns_to_the_thread(monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", 0.001)
    with running(Compiler()) as compiler, compiler.turns.call():
        assert compiler.steps(LONG)
        # Also where the call waits for what the thread holds.
        for _ in range(20):
            compiler.holds.clear()
            assert compiler.holds.wait(LONG)
            with compiler.held:
                pass


def test_a_call_in_a_call_of_a_forked_child(monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", LONG)
    with running(Compiler()) as compiler:
        with compiler.turns.call(), compiler.turns.call():
            compiler.turns.forget()
            # None of the calls is one of the child's.
            assert compiler.steps(LONG)
        assert compiler.steps(LONG)


def test_a_profiler_of_the_user_stays():
    seen = []

    def profiler(*_: object) -> None:
        seen.append(sys.getprofile())

    def work() -> None:
        with compiler.turns.taken():
            compiler._step()
        seen.append(sys.getprofile())

    compiler = Compiler()
    threading.setprofile(profiler)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.setprofile(None)
    assert set(seen) == {profiler} and len(seen) > 2


@pytest.mark.parametrize("fails", [False, True])
def test_the_turns_end_with_the_block(fails):
    class Failed(Exception):
        pass

    try:
        with Turns().taken():
            assert sys.getprofile() is not None
            if fails:
                raise Failed
    except Failed:
        pass
    assert sys.getprofile() is None


def test_a_call_in_a_call(monkeypatch):
    monkeypatch.setattr(turns, "PAUSE", LONG)
    with running(Compiler()) as compiler:
        with compiler.turns.call():
            with compiler.turns.call():
                pass
            # It ends what it is at.
            compiler.steps(0.1)
            assert not compiler.steps(0.2)
        assert compiler.steps(LONG)
