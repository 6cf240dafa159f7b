"""Several threads, forked processes, and regions that meet themselves."""

from __future__ import annotations

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

import fineline

X = torch.arange(4.0)


def together(n, fn):
    """What ``fn(i)`` gives in ``n`` threads that start at once."""
    barrier = threading.Barrier(n)

    def run(i):
        barrier.wait()
        return fn(i)

    with ThreadPoolExecutor(n) as pool:
        return [f.result(timeout=60) for f in [pool.submit(run, i) for i in range(n)]]


def program(x):
    y = x * 2
    if y.sum() > 10:
        y = y.sin()
    for i in range(3):
        y = y + i
    return y


@pytest.mark.parametrize("round_", range(5))
def test_first_calls_at_once(round_) -> None:
    c = fineline.compile(program, backend="eager")
    results = together(4, lambda i: [c(X + i) for _ in range(20)])
    for i, got in enumerate(results):
        assert all(torch.equal(r, program(X + i)) for r in got)
    assert torch.equal(c(X), program(X))


def test_many_warm_threads_with_misses() -> None:
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    c = fineline.compile(m, backend="eager")
    c(torch.randn(1, 4))

    def work(i):
        for k in range(60):
            x = torch.full((1 + (i + k) % 5, 4), float(k))
            assert torch.equal(c(x), m(x))
        return True

    assert all(together(8, work))


def test_a_capture_that_waits_for_another_thread_of_the_same_region() -> None:
    def f(x, pool):
        y = x + 1
        if pool is not None:
            y = y + pool.submit(c, x, None).result(timeout=30)
        return y * 2

    c = fineline.compile(f, backend="eager")
    with ThreadPoolExecutor(1) as pool:
        for _ in range(3):
            assert torch.equal(c(X, pool), (X + 1 + (X + 1) * 2) * 2)


def test_grad_mode_is_each_threads_own() -> None:
    w = torch.ones(4, requires_grad=True)
    c = fineline.compile(lambda x: x * w, backend="eager")

    def work(i):
        for _ in range(10):
            with torch.set_grad_enabled(i % 2 == 0):
                assert c(X).requires_grad is (i % 2 == 0)
        return True

    assert all(together(4, work))


# -- fork ----------------------------------------------------------------------------------------------------------------
def in_child(fn) -> int:
    """The exit status of a forked child that runs ``fn``."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            torch.set_num_threads(1)
            status = 0 if fn() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_before_and_after_a_capture() -> None:
    c = fineline.compile(program, backend="eager")
    assert in_child(lambda: torch.equal(c(X), program(X)) and torch.equal(c(X), program(X))) == 0
    c(X)
    assert in_child(lambda: torch.equal(c(X + 1), program(X + 1)) and torch.equal(c(torch.ones(7)), program(torch.ones(7)))) == 0
    assert torch.equal(c(X), program(X))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork_while_another_thread_captures() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def backend(gm, inputs):
        if threading.current_thread() is not threading.main_thread():
            inside.set()
            go_on.wait(30)
        return gm.forward

    c = fineline.compile(program, backend=backend)
    thread = threading.Thread(target=c, args=(X,))
    thread.start()
    inside.wait(30)
    try:
        assert in_child(lambda: torch.equal(c(X), program(X)) and bool(c._region.segments())) == 0
    finally:
        go_on.set()
        thread.join()


def _pool_work(n):
    torch.set_num_threads(1)
    return compiled_for_pool(torch.full((3,), float(n))).sum().item()


compiled_for_pool = fineline.compile(lambda x: x * 2 + 1, backend="eager")


def test_multiprocessing_fork() -> None:
    compiled_for_pool(X)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(_pool_work, range(6)) == [3 * (n * 2.0 + 1) for n in range(6)]


# -- a region that meets itself --------------------------------------------------------------------------------------------
def test_a_region_that_calls_itself() -> None:
    @fineline.compile(backend="eager")
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    for _ in range(2):
        for n in (0, 1, 4):
            assert torch.equal(power(X, n), X ** (n + 1))


def test_a_region_called_inside_its_own_capture_from_c() -> None:
    @fineline.disable
    def through(fn, *args):
        return fn(*args)

    def f(x, n):
        return x + 1 if n == 0 else through(c, x, n - 1) * 2

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(c(X, 3), (X + 1) * 8)
        assert torch.equal(c(X, 0), X + 1)


def test_regions_in_regions() -> None:
    inner = fineline.compile(lambda x: x.sin(), backend="eager")
    m = fineline.compile(nn.Linear(4, 4), backend="eager")
    c = fineline.compile(lambda x: m(inner(x)) + inner(x), backend="eager", fullgraph=True)
    for _ in range(3):
        assert torch.equal(c(X), m._orig_mod(X.sin()) + X.sin())


def test_compiling_inside_a_region() -> None:
    def f(x):
        g = fineline.compile(lambda y: y.cos(), backend="eager")
        return g(x) + 1

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(c(X), X.cos() + 1)


def test_reset_inside_a_region() -> None:
    def f(x):
        y = x + 1
        fineline.reset()
        return y * 2

    c = fineline.compile(f, backend="eager")
    for _ in range(3):
        assert torch.equal(c(X), (X + 1) * 2)
