"""``fineline run --explain`` counts the operators of all calls, later ones too, and changes nothing by it."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import fineline
from fineline.cli.event_log import Heard
from fineline.report.events import LISTENERS
from fineline.report.explain import Explanation
from fineline.report.operator_counter import RunCounts

X = torch.rand(3, 4)
# So many calls: the first is captured, the second may be, the others are warm.
CALLS = 4

pytestmark = pytest.mark.skipif(not RunCounts.available(), reason="needs the native core")


class Count(TorchDispatchMode):
    total = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.total += 1
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def heard() -> Iterator[Heard]:
    """What a run hears of the functions that are compiled and called meanwhile."""
    hears, before = Heard(), (LISTENERS.all, LISTENERS.trees)
    LISTENERS.all, LISTENERS.trees = (*LISTENERS.all, hears.hear), True
    try:
        yield hears
    finally:
        LISTENERS.all, LISTENERS.trees = before
        fineline.reset()


def inner(x):
    return (x * 2).relu()


@fineline.disable
def off(x):
    return inner(x) + 1


@fineline.disable(recursive=False)
def frame_only(x):
    return inner(x.sin()) * 2


def whole(x):
    return inner(x) + 1


def number(x):
    return x * x.sum().item()


def whole_number(x):
    return x * int(x.sum())


def branch(x):
    return inner(x) if x.sum() > 0 else x


def disabled(x):
    return off(inner(x)) * 2


def disabled_frame(x):
    return frame_only(x) + 1


def block(x):
    with fineline.disable():
        y = inner(x) + 1
    return y * 2


def loop(x):
    for _ in range(3):
        x = off(x) * x.sum().item()
    return x


def generator(x):
    return sum(inner(x) for _ in range(2))


def composite(x):
    return nn.functional.linear(nn.functional.layer_norm(x, (4,)), x.new_ones(2, 4)).reshape(-1)


def attention(x):
    q = x.view(1, 1, 3, 4)
    return nn.functional.scaled_dot_product_attention(q, q, q)


def trained(x):
    w = torch.ones(4, requires_grad=True)
    loss = (inner(x) * w).sum()
    loss.backward()
    return w.grad


def printed(x):
    print(end="")
    return inner(x)


def drawn(x):
    return x + torch.rand(3, 4).relu()


PROGRAMS = {
    "a graph": (whole, {"captured": 3}),
    "a number that is read": (number, {"captured": 2, "eager": 1}),
    "a branch": (branch, None),
    "a disabled function": (disabled, {"captured": 3, "skipped": 3}),
    "a disabled frame": (disabled_frame, {"captured": 1, "skipped": 2}),
    "a block": (block, {"captured": 1, "skipped": 3}),
    "a loop": (loop, None),
    "a generator": (generator, None),
    "composite operators": (composite, None),
    "attention": (attention, None),
    "a backward pass": (trained, None),
    "printing": (printed, {"captured": 2}),
    "random numbers": (drawn, {"captured": 3}),
}


def explanation_of(hears: Heard, *names: str) -> list[Explanation]:
    found = {e.name: e for e in hears.explanations()}
    return [found[name] for name in names or found]


def total(explanations: list[Explanation]) -> int:
    assert all(e.counted for e in explanations)
    return sum(n for e in explanations for n in e.ran.values() if n is not None)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_operators_of_all_calls_are_counted(name: str, backend: str) -> None:
    fn, known = PROGRAMS[name]
    with Count() as count:
        expected = fn(X)
    plain = fineline.compile(fn, backend=backend)
    for _ in range(CALLS):
        torch.manual_seed(0)
        expected = plain(X)
    graphs = [graph.code for graph in fineline.report(plain).graphs]
    with heard() as hears:
        compiled = fineline.compile(fn, backend=backend)
        for _ in range(CALLS):
            torch.manual_seed(0)
            assert torch.equal(compiled(X), expected)
        assert [graph.code for graph in fineline.report(compiled).graphs] == graphs
        told = explanation_of(hears)
        if known is not None and (backend == "eager" or "captured" in known):
            [own] = explanation_of(hears, fn.__qualname__)
            assert own.ran == {kind: CALLS * known.get(kind, 0) for kind in own.ran}
        if backend == "eager":
            assert total(told) == CALLS * count.total


@pytest.mark.parametrize("dynamic", [None, True])
def test_captures_on_fakes_count_what_runs_once(dynamic: bool | None) -> None:
    with heard() as hears:
        compiled = fineline.compile(whole, backend="eager", dynamic=dynamic)
        for n in (3, 4, 5, 6):
            compiled(torch.rand(n, 4))
        [told] = explanation_of(hears)
        assert told.ran == {"captured": 12, "eager": 0, "skipped": 0}


def test_calls_that_fit_no_program_any_more_are_skipped() -> None:
    def f(x, y):
        return x + len(y)

    with heard() as hears:
        compiled = fineline.compile(f, backend="eager", recompile_limit=1)
        for y in ("a", [1], {1}):
            compiled(X, y)
        [told] = explanation_of(hears)
        assert told.ran == {"captured": 1, "eager": 0, "skipped": 2}


def test_an_operator_counts_for_the_innermost_function() -> None:
    with heard() as hears:
        within = fineline.compile(inner, backend="eager")

        @fineline.disable
        def calls(x):
            return within(x) + 1

        def outer(x):
            return calls(x.sin())

        compiled = fineline.compile(outer, backend="eager")
        for _ in range(CALLS):
            compiled(X)
        told, own = explanation_of(hears, outer.__qualname__, inner.__qualname__)
        assert told.ran == {"captured": CALLS, "eager": 0, "skipped": CALLS} and own.ran == {"captured": 2 * CALLS, "eager": 0, "skipped": 0}


def test_a_mode_of_the_users_keeps_its_effect() -> None:
    with heard() as hears:
        compiled = fineline.compile(whole, backend="eager")
        with Count() as count:
            compiled(X)
        [told] = explanation_of(hears)
        assert count.total == 3 and told.ran == {"captured": 0, "eager": 0, "skipped": 3}


def test_explain_inside_of_a_run_captures_as_anywhere() -> None:
    with heard():
        assert fineline.explain(whole)(X).ran == {"captured": 3, "eager": 0, "skipped": 0}
        compiled = fineline.compile(inner, backend="eager")
        told = fineline.explain(lambda x: off(compiled(x)))(X)
        assert told.ran == {"captured": 2, "eager": 0, "skipped": 3}


def test_threads_count_for_the_same_function() -> None:
    with heard() as hears:
        compiled = fineline.compile(whole_number, backend="eager")
        compiled(X)
        threads = [threading.Thread(target=lambda: [compiled(X) for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [told] = explanation_of(hears)
        assert told.ran == {"captured": 402, "eager": 201, "skipped": 0}


def test_a_call_that_raises_leaves_nobody_counting() -> None:
    def f(x):
        y = x + 1
        x.sum().item()
        raise ValueError(str(y.shape))

    with heard() as hears:
        compiled = fineline.compile(f, backend="eager")
        for _ in range(CALLS):
            with pytest.raises(ValueError):
                compiled(X)
        counted = total(explanation_of(hears))
        inner(X)
        assert total(explanation_of(hears)) == counted == 3 * CALLS


def test_an_exception_of_a_signal_handler_leaves_the_call() -> None:
    class Late(Exception):
        pass

    def late(signum, frame):
        raise Late("now")

    def f(x):
        for _ in range(200):
            x = x + 1
        return x

    before = signal.signal(signal.SIGALRM, late)
    try:
        with heard():
            compiled = fineline.compile(f, backend="eager")
            compiled(X)
            for i in range(40):
                with pytest.raises(Late, match="now"):
                    signal.setitimer(signal.ITIMER_REAL, 0.0003 + i * 0.0001)
                    began = time.monotonic()
                    while time.monotonic() - began < 5:
                        compiled(X)
            assert torch.equal(compiled(X), f(X))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_elsewhere_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Callable] = []
    monkeypatch.setattr(RunCounts, "during", lambda self, kind, call, *args: calls.append(call) or call(*args))
    fineline.compile(whole, backend="eager")(X)
    assert not calls
