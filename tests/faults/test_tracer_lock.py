"""Threads that compile at once: PyTorch's tracers are used by one of them at a time, and nobody waits for ever."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import fineline
from fineline.backends.lock import TRACERS, TracersBusy

X = torch.arange(12.0).reshape(3, 4)

WAYS = {
    "eager": {"backend": "eager"},
    "dynamic": {"backend": "eager", "dynamic": True},
    "fullgraph": {"backend": "eager", "fullgraph": True, "options": {"first_call": "compiled"}},
    "aot": {"backend": "aot_eager"},
    "aot_dynamic": {"backend": "aot_eager", "dynamic": True},
    "inductor": {"backend": "inductor"},
}


@pytest.fixture
def restless():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(TRACERS, "longest", 0.5)


def function(k, training):
    names: dict = {}
    loss = "(x.sin() * k).sum() + (x * x).sum()" if training else "(x.sin() * k).cumsum(0) + x.shape[0]"
    exec(f"def f(x):\n    k = {k}\n    for i in range(3):\n        x = x.tanh() + i\n    return {loss}", names)
    return names["f"]


@pytest.mark.parametrize("training", [False, pytest.param(True, marks=pytest.mark.later)])
@pytest.mark.parametrize("way", [pytest.param(way, marks=[pytest.mark.later] if way == "inductor" else []) for way in WAYS])
def test_different_regions_at_once(way, training, restless) -> None:
    threads, rounds = (6, 1) if way == "inductor" else (7, 4)
    errors, barrier = [], threading.Barrier(threads)

    def work(k):
        barrier.wait()
        for i in range(rounds):
            fn = function(k * 100 + i, training)
            compiled = fineline.compile(fn, **WAYS[way])
            for n in (3, 5):
                a, b = [torch.arange(n * 4.0).reshape(n, 4).requires_grad_(training) for _ in range(2)]
                try:
                    got, expected = compiled(a), fn(b)
                    torch.testing.assert_close(got, expected)
                    if training:
                        got.backward()
                        expected.backward()
                        torch.testing.assert_close(a.grad, b.grad)
                except BaseException as e:
                    errors.append(f"{type(e).__name__}: {e}")
            restarts = [e for e in compiled._region.reports.events if e.kind == "restart"]
            if restarts:
                errors.append(str(restarts))

    together = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for t in together:
        t.start()
    for t in together:
        t.join(240)
    assert not errors, errors[:3]
    assert not torch.is_anomaly_enabled() and torch.is_grad_enabled() and not any(t.is_alive() for t in together)


@pytest.mark.parametrize("way", ["eager", "dynamic", "aot", "aot_dynamic"])
def test_code_that_waits_for_another_thread_that_compiles(way) -> None:
    """What is called there runs for real: behind a graph break, without the lock."""
    with ThreadPoolExecutor(1) as pool:

        def fn(x, inner):
            y = x * 2
            return y + pool.submit(inner, x).result(timeout=30)

        compiled = fineline.compile(fn, **WAYS[way])
        for n in (3, 4, 5):
            x = torch.ones(n)
            inner = fineline.compile(lambda x: x.sin() + 1, **WAYS[way])
            assert torch.equal(compiled(x, inner), x * 2 + (x.sin() + 1))


def test_a_backend_that_waits_for_another_thread_that_compiles(impatient) -> None:
    """It holds the lock: the other thread's graph runs as it was captured."""
    regions = []

    def backend(gm, inputs):
        with ThreadPoolExecutor(1) as pool:
            inner = fineline.compile(lambda x: x.cos(), backend="aot_eager")
            regions.append(inner._region)
            assert torch.equal(pool.submit(inner, X).result(timeout=30), X.cos())
        return gm.forward

    compiled = fineline.compile(lambda x: x.sin(), backend=backend)
    assert torch.equal(compiled(X), X.sin()) and torch.equal(compiled(X), X.sin())
    assert [e.id for e in regions[0].reports.events if e.kind == "eager"] == ["FL435"]


@torch.library.custom_op("tracer_lock::waiting", mutates_args=())
def waiting(x: torch.Tensor) -> torch.Tensor:
    return x + 1


INNER = fineline.compile(lambda x: x.cos() * x.shape[0], backend="eager", dynamic=True)


@waiting.register_fake
def _(x):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(INNER, X).result(timeout=30) is not None
    return torch.empty_like(x)


def test_a_fake_implementation_that_waits_for_another_thread_that_captures(impatient) -> None:
    """It holds the lock, too: the other thread's call runs eagerly, and is captured the next time."""
    compiled = fineline.compile(lambda x: waiting(x) * 2, backend="eager", dynamic=True)
    for _ in range(2):
        assert torch.equal(compiled(X), (X + 1) * 2)
    assert any("has been compiling" in e.reason for e in INNER._region.reports.events)
    assert torch.equal(INNER(X), X.cos() * 3) and INNER._region.segments()


def test_warm_calls_do_not_wait() -> None:
    compiled = fineline.compile(lambda x: x.sin() * x.shape[0], backend="aot_eager", dynamic=True)
    compiled(X)
    live = fineline.compile(lambda x: x.cos() + 1, backend="eager")
    with ThreadPoolExecutor(1) as pool:

        def elsewhere():
            # Neither does a capture on the real tensors.
            return pool.submit(lambda: (compiled(X), live(X))).result(timeout=20)

        got = TRACERS.holding(elsewhere)
    assert torch.equal(got[0], X.sin() * 3) and torch.equal(got[1], X.cos() + 1)


def test_a_thread_may_take_it_again_and_others_are_told(impatient) -> None:
    assert TRACERS.holding(TRACERS.holding, lambda: 1) == 1
    with ThreadPoolExecutor(1) as pool:

        def elsewhere():
            return pool.submit(TRACERS.holding, lambda: 1).exception(timeout=20)

        assert type(TRACERS.holding(elsewhere)) is TracersBusy
        assert pool.submit(TRACERS.holding, lambda: 1).result(timeout=20) == 1


def _child(pipe) -> None:
    compiled = fineline.compile(lambda x: x.sin() * x.shape[0], backend="aot_eager", dynamic=True)
    pipe.send(torch.equal(compiled(X), X.sin() * 3))


def test_a_forked_child_has_a_lock_of_its_own() -> None:
    held, done = threading.Event(), threading.Event()

    def hold():
        held.set()
        done.wait(60)

    thread = threading.Thread(target=TRACERS.holding, args=(hold,))
    thread.start()
    held.wait()
    try:
        context = multiprocessing.get_context("fork")
        mine, theirs = context.Pipe()
        child = context.Process(target=_child, args=(theirs,))
        child.start()
        assert mine.poll(50) and mine.recv()
        child.join(20)
    finally:
        done.set()
        thread.join()
