"""Captures in a thread beside calls: what they see, what they leave alone, and when a call is captured in its own thread after all."""

from __future__ import annotations

import os
import threading
import time
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import fineline
from fineline.background.queue import CAPTURES
from fineline.region import background_capture
from fineline.report.events import LISTENERS
from tests.background.gates import LONGEST, Gate, captured
from tests.background.test_processes import in_child, needs_fork, ran

X = torch.linspace(-1, 1, 6)
BEGAN, MAY_GO = threading.Event(), threading.Event()


@torch.library.custom_op("tests_background::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@slow.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    if threading.current_thread().name == "fineline-capture":
        BEGAN.set()
        assert MAY_GO.wait(LONGEST)
    return torch.empty_like(x)


@pytest.fixture(autouse=True)
def gates():
    BEGAN.clear(), MAY_GO.clear()
    yield
    MAY_GO.set()
    assert fineline.wait(LONGEST)


def compiled_soon(fn):
    gate = Gate()
    gate.open()
    return fineline.compile(fn, backend=gate, wait=False)


def ids(compiled):
    return [event.id for event in fineline.report(compiled).events if event.kind in ("graph", "restart")]


def test_the_first_call_is_captured_after_it_has_run() -> None:
    threads = []

    def hear(event):
        threads.append((event.kind, threading.current_thread().name))

    def step(x):
        threads.append(("runs", threading.current_thread().name))
        return x.sin() + 1

    def plain(x):
        return x.sin() + 1

    compiled = compiled_soon(plain)
    before, LISTENERS.all = LISTENERS.all, (*LISTENERS.all, hear)
    try:
        assert torch.equal(captured(compiled, X), plain(X))
        assert ("program", "fineline-capture") in threads and ("program", "MainThread") not in threads
        assert fineline.wait(LONGEST) and torch.equal(compiled(X), plain(X)) and compiled.ready()
    finally:
        LISTENERS.all = before
    assert ids(compiled) == ["FL001"]
    # The user's code runs in the user's thread: this one has an effect, and so its second call is captured there.
    threads.clear()
    compiled = compiled_soon(step)
    for n in range(1, 4):
        assert torch.equal(captured(compiled, X), plain(X))
        assert threads == n * [("runs", "MainThread")]
    assert ids(compiled) == ["FL016", "FL001"]


def test_calls_run_eagerly_meanwhile() -> None:
    compiled = compiled_soon(lambda x: slow(x) * 2)
    assert torch.equal(compiled(X), X.sin() * 2)
    assert BEGAN.wait(LONGEST) and not compiled.ready() and not fineline.wait(0.01)
    for x in (X, X + 1, torch.ones(2)):
        assert torch.equal(compiled(x), x.sin() * 2)
    assert ids(compiled) == []
    MAY_GO.set()
    assert fineline.wait(LONGEST) and ids(compiled) == ["FL001"] and torch.equal(compiled(X), X.sin() * 2) and compiled.ready()


def test_attributes_that_it_sets_are_seen_by_no_other_code() -> None:
    holder = SimpleNamespace()

    class Settings:
        level = 0

    settings = Settings()

    def fn(x):
        settings.level = 3
        y = slow(x) * settings.level
        settings.level = 0
        return y + settings.level

    compiled = compiled_soon(fn)
    assert torch.equal(compiled(X), X.sin() * 3)
    assert BEGAN.wait(LONGEST) and settings.level == 0
    settings.level = 0
    MAY_GO.set()
    assert fineline.wait(LONGEST) and ids(compiled) == ["FL001"] and settings.level == 0
    assert torch.equal(compiled(X), X.sin() * 3) and settings.level == 0 and vars(settings) == {"level": 0}
    # A namespace is no class of the user's.
    compiled = compiled_soon(lambda x: (setattr(holder, "last", 1), x + holder.last)[1])
    assert torch.equal(captured(compiled, X), X + 1) and torch.equal(compiled(X), X + 1) and ids(compiled) == ["FL016", "FL001"]


@pytest.mark.parametrize("read", ["attribute", "length", "key", "global", "cell", "pure code"])
def test_what_changes_and_changes_back_is_noticed(read: str) -> None:
    """The guards of such a program would hold at the next call."""

    class Settings:
        pass

    settings = Settings()
    settings.scale, settings.items, settings.table = 2, [1], {"scale": 2}
    cell, space = 2, {"slow": slow, "SCALE": 2}
    exec("def of_global(x):\n    return slow(x * SCALE) * SCALE", space)
    exec("def scaled(n):\n    return n * SCALE\ndef of_pure_code(x):\n    return slow(x * scaled(1)) * scaled(1)", space)

    def change() -> None:
        nonlocal cell
        settings.scale, settings.table["scale"], cell, space["SCALE"] = 5, 5, 5, 5
        settings.items.append(2)

    def back() -> None:
        nonlocal cell
        settings.scale, settings.table["scale"], cell, space["SCALE"] = 2, 2, 2, 2
        settings.items.pop()

    functions = {
        "attribute": lambda x: slow(x * settings.scale) * settings.scale,
        "length": lambda x: slow(x * len(settings.items)) * len(settings.items),
        "key": lambda x: slow(x * settings.table["scale"]) * settings.table["scale"],
        "global": space["of_global"],
        "cell": lambda x: slow(x * cell) * cell,
        "pure code": space["of_pure_code"],
    }
    fn = functions[read]
    compiled, expected = compiled_soon(fn), fn(X)
    assert torch.equal(compiled(X), expected) and BEGAN.wait(LONGEST)
    change()
    MAY_GO.set()
    assert CAPTURES.wait(LONGEST)
    back()
    # The second read has been compared with the first; a global is read once.
    for _ in range(3):
        assert torch.equal(captured(compiled, X), expected) and fineline.wait(LONGEST)
    assert ids(compiled) == (["FL001"] if read in ("global", "pure code") else ["FL017", "FL001"])
    change()
    assert torch.equal(compiled(X), fn(X))


def test_it_is_tried_again_and_then_waits() -> None:
    class Settings:
        scale = 2.0

    settings = Settings()
    compiled = compiled_soon(lambda x: slow(x * settings.scale) * settings.scale)
    for n in range(3):
        settings.scale = 2.0
        BEGAN.clear(), MAY_GO.clear()
        assert torch.equal(compiled(X), (X * 2).sin() * 2) and BEGAN.wait(LONGEST)
        settings.scale = 3.0
        MAY_GO.set()
        assert CAPTURES.wait(LONGEST) and ids(compiled) == (n + 1) * ["FL017"]
    assert torch.equal(compiled(X), (X * 3).sin() * 3) and ids(compiled) == [*3 * ["FL017"], "FL001"]


def test_a_state_of_the_whole_process_is_left_to_the_code_that_sets_it() -> None:
    """The thread neither puts back what a block beside it has set, nor makes it a part of its program."""

    def enabled() -> tuple[bool, ...]:
        return torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(), torch.backends.cuda.math_sdp_enabled()

    usual, compiled = enabled(), compiled_soon(lambda x: slow(x) + 1)
    assert torch.equal(compiled(X), X.sin() + 1) and BEGAN.wait(LONGEST)
    with sdpa_kernel(SDPBackend.MATH):
        inside = enabled()
        MAY_GO.set()
        assert CAPTURES.wait(LONGEST) and enabled() == inside != usual
    assert enabled() == usual and ids(compiled) == ["FL017"]
    assert torch.equal(captured(compiled, X), X.sin() + 1) and fineline.wait(LONGEST) and ids(compiled) == ["FL017", "FL001"]
    assert torch.equal(compiled(X), X.sin() + 1) and enabled() == usual


def test_what_ends_a_capture_is_told_with_its_line() -> None:
    seen = []

    def effect(x):
        seen.append(1)
        return x + 1

    def breaks(x):
        y = x + 1
        print(end="")
        return y * 2

    for fn, offset in ((effect, 1), (breaks, 2)):
        compiled = compiled_soon(fn)
        captured(compiled, X)
        (event,) = [event for event in fineline.report(compiled).events if event.kind == "restart"]
        assert (event.id, event.file, event.line) == ("FL016", __file__, fn.__code__.co_firstlineno + offset), event
        assert "; the next call is captured while it waits" in event.reason


def test_a_fault_of_its_own(monkeypatch) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(background_capture, "adopt", fails)
    compiled = compiled_soon(lambda x: x + 1)
    for _ in range(3):
        assert torch.equal(captured(compiled, X), X + 1)
    assert ids(compiled) == ["FL016", "FL001"]


def test_a_reset_does_not_wait_for_a_compiler() -> None:
    busy = Gate()
    other, compiled = fineline.compile(lambda x: x + 1, backend=busy, wait=False), compiled_soon(lambda x: x * 2)
    captured(other, X)
    assert busy.began.wait(LONGEST)
    compiled(X)
    began = time.monotonic()
    fineline.reset()
    assert time.monotonic() - began < LONGEST / 2 and not busy.may_go.is_set()
    busy.open()
    assert fineline.wait(LONGEST) and torch.equal(compiled(X), X * 2)


def test_an_error_of_the_first_call() -> None:
    def fn(x):
        if x.shape[0] > 6:
            raise ValueError("too long")
        return x + 1

    compiled = compiled_soon(fn)
    with pytest.raises(ValueError, match="too long"):
        compiled(torch.ones(7))
    assert CAPTURES.wait(0) and torch.equal(captured(compiled, X), X + 1) and fineline.wait(LONGEST) and compiled.ready()
    with pytest.raises(ValueError, match="too long"):
        compiled(torch.ones(7))


def test_what_belongs_to_a_thread() -> None:
    local = threading.local()
    local.scale = 2
    compiled = compiled_soon(lambda x: x * local.scale)
    assert torch.equal(captured(compiled, X), X * 2) and torch.equal(compiled(X), X * 2) and ids(compiled) == ["FL016", "FL001"]


def test_the_arguments_live_no_longer_than_the_capture() -> None:
    class Token:
        alive = 0

        def __init__(self) -> None:
            Token.alive += 1

        def __del__(self) -> None:
            Token.alive -= 1

    compiled = compiled_soon(lambda x, token: x * 2)
    captured(compiled, X, Token())
    assert Token.alive == 0


def test_a_region_that_is_dropped_is_not_captured() -> None:
    began = []
    before = LISTENERS.all
    with CAPTURES.held():
        compiled = compiled_soon(lambda x: x + 1)
        compiled(X)
        LISTENERS.all = (*before, began.append)
        del compiled
    try:
        assert CAPTURES.wait(LONGEST) and [event for event in began if event.kind == "program"] == []
    finally:
        LISTENERS.all = before


def test_equal_callables_are_captured_once() -> None:
    blocks = [fineline.compile(torch.nn.Linear(6, 6), backend="eager", wait=False) for _ in range(3)]
    for block in blocks:
        block(X)
    assert fineline.wait(LONGEST)
    found = [[event.id for event in fineline.report(block).events] for block in blocks]
    assert found == [["FL001"], ["FL005"], ["FL005"]]


def test_threads() -> None:
    compiled, wrong = compiled_soon(lambda x: slow(x) + 1), []

    def work(n: int) -> None:
        for i in range(30):
            x = torch.full((6,), float(n + i))
            if not torch.equal(compiled(x), x.sin() + 1):
                wrong.append((n, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    MAY_GO.set()
    for thread in threads:
        thread.join(LONGEST)
    assert fineline.wait(LONGEST) and not wrong and ids(compiled) == ["FL001"]


def test_a_process_that_can_start_no_thread(monkeypatch) -> None:
    def refused(self) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        compiled = fineline.compile(lambda x: x + 1, backend="eager", wait=False)
        assert torch.equal(compiled(X), X + 1) and fineline.wait(0) and not compiled.ready()
    assert torch.equal(captured(compiled, X), X + 1) and compiled.ready()


@needs_fork
def test_a_forked_child_captures_for_itself() -> None:
    compiled = compiled_soon(lambda x: slow(x) + 1)
    compiled(X)
    assert BEGAN.wait(LONGEST)

    def calls() -> bool:
        MAY_GO.set()
        right = CAPTURES.wait(0) and torch.equal(compiled(X), X.sin() + 1) and fineline.wait(LONGEST)
        return right and torch.equal(compiled(X), X.sin() + 1) and compiled.ready() and ids(compiled) == ["FL001"]

    assert in_child(calls)
    MAY_GO.set()
    assert fineline.wait(LONGEST) and torch.equal(compiled(X), X.sin() + 1) and compiled.ready()


@needs_fork
def test_a_child_that_is_forked_while_another_thread_makes_the_first_call() -> None:
    entered, leaves = threading.Event(), threading.Event()

    def fn(x):
        entered.set()
        assert leaves.wait(LONGEST)
        return x + 1

    compiled = compiled_soon(fn)
    thread = threading.Thread(target=compiled, args=(X,))
    thread.start()
    assert entered.wait(LONGEST)

    def calls() -> bool:
        leaves.set()
        return all([torch.equal(captured(compiled, X), X + 1) for _ in range(3)]) and "FL016" in ids(compiled)

    assert in_child(calls)
    leaves.set()
    thread.join(LONGEST)


@pytest.mark.skipif(not hasattr(os, "register_at_fork"), reason="it ends as on the platforms with fork")
def test_the_interpreter_ends_during_a_capture() -> None:
    done = ran(
        """
        @torch.library.custom_op("ends::busy", mutates_args=())
        def busy(x: torch.Tensor) -> torch.Tensor:
            return x + 1
        @busy.register_fake
        def _(x):
            while True:
                torch.ones(100).sum()
        fineline.compile(lambda x: busy(x), backend="eager", wait=False)(x)
        time.sleep(0.2)
        print('the end')
        """,
        seconds=0,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "the end\n", "")
