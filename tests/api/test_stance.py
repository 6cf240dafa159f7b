"""``set_stance``, ``run``, ``error_on_graph_break``, ``optimize`` and ``nested_compile_region``."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

import fineline
from fineline.errors import BadArgument, Forbidden, Recompiled, Unsupported

X = torch.arange(4.0)
LONG = torch.arange(6.0)


class Probe:
    """Notes the graphs that it compiles, and how often they run."""

    def __init__(self):
        self.graphs = self.ran = 0

    def __call__(self, gm, inputs):
        self.graphs += 1

        def run(*args):
            self.ran += 1
            return gm(*args)

        return run


@pytest.fixture(autouse=True)
def default_again():
    yield
    fineline.set_stance("default")


def f(x):
    return x.sin() + 1


def broken(x):
    x = x.sin()
    fineline.graph_break()
    return x.cos()


def test_force_eager_and_back_without_a_new_capture():
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    c(X)
    ran = probe.ran
    fineline.set_stance("force_eager")
    assert torch.equal(c(X), f(X)) and torch.equal(c(LONG), f(LONG))
    assert (probe.graphs, probe.ran) == (1, ran)
    fineline.set_stance("default")
    c(X)
    assert probe.graphs == 1 and probe.ran == ran + 1


def test_as_context_manager_and_decorator():
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    with fineline.set_stance("force_eager"):
        c(X)
        with fineline.set_stance("default"):
            c(X)
            assert probe.graphs == 1
        c(LONG)
    assert probe.graphs == 1

    @fineline.set_stance("force_eager")
    def outer(x):
        """Calls it."""
        return c(x)

    assert outer.__doc__ == "Calls it."
    outer(LONG)
    assert probe.graphs == 1
    c(LONG)
    assert probe.graphs == 2
    outer(LONG), outer(X)
    assert probe.graphs == 2


def test_it_holds_for_all_threads():
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    c(X)
    ran, seen = probe.ran, []
    with fineline.set_stance("force_eager"):
        thread = threading.Thread(target=lambda: seen.append(c(X)))
        thread.start()
        thread.join()
    assert torch.equal(seen[0], f(X)) and probe.ran == ran
    thread = threading.Thread(target=lambda: seen.append(c(X)))
    thread.start()
    thread.join()
    assert (probe.graphs, probe.ran) == (1, ran + 1)


@pytest.mark.parametrize("fn", [f, broken])
def test_eager_on_recompile(fn):
    probe = Probe()
    c = fineline.compile(fn, backend=probe)
    c(X)
    graphs, ran = probe.graphs, probe.ran
    with fineline.set_stance("eager_on_recompile"):
        assert torch.equal(c(LONG), fn(LONG)) and probe.ran == ran
        assert torch.equal(c(X), fn(X)) and probe.ran > ran
    assert probe.graphs == graphs


def test_fail_on_recompile():
    c = fineline.compile(f, backend="eager")
    c(X)
    with fineline.set_stance("fail_on_recompile"):
        assert torch.equal(c(X), f(X))
        with pytest.raises(Recompiled, match="size") as caught:
            c(LONG)
        assert isinstance(caught.value, RuntimeError) and caught.value.id == "FL108" and __file__ in caught.value.where
    assert torch.equal(c(LONG), f(LONG))


def test_eager_then_compile():
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    with fineline.set_stance("eager_then_compile"):
        assert torch.equal(c(X), f(X)) and probe.graphs == 0
        assert torch.equal(c(X), f(X)) and probe.graphs == 1
        c(X)
    c(X)
    assert probe.graphs == 1
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    with fineline.set_stance("aot_eager_then_compile"):
        assert torch.equal(c(X), f(X)) and probe.graphs == 0
        assert torch.equal(c(X), f(X)) and probe.graphs == 1


@pytest.mark.parametrize("fn", [f, broken])
def test_force_backend(fn):
    own, forced = Probe(), Probe()
    c = fineline.compile(fn, backend=own)
    c(X)
    n = own.graphs
    with fineline.set_stance(force_backend=forced):
        for _ in range(2):
            assert torch.equal(c(X), fn(X))
        assert (own.graphs, forced.graphs) == (n, n)
    ran = own.ran
    c(X)
    assert own.ran > ran and (own.graphs, forced.graphs) == (n, n)
    ran = forced.ran
    with fineline.set_stance("default", force_backend=forced):
        c(X)
    assert forced.ran > ran and forced.graphs == n
    with fineline.set_stance(force_backend="eager"):
        c(X)
    assert (own.graphs, forced.graphs) == (n, n)


def test_mistakes():
    for stance, backend in (("fast", None), ("force_eager", "eager"), ("default", "no such backend")):
        with pytest.raises(BadArgument):
            fineline.set_stance(stance, force_backend=backend)
    fineline.compile(f, backend=(probe := Probe()))(X)
    assert probe.graphs == 1  # the mistakes changed nothing


def test_captured_code_may_not_set_it():
    def calls(x):
        fineline.set_stance("force_eager")
        return x + 1

    def block(x):
        with fineline.set_stance("force_eager"):
            return x + 1

    @fineline.set_stance("force_eager")
    def decorated(x):
        return x + 1

    for fn in (calls, block, decorated, lambda x: decorated(x * 2)):
        with pytest.raises(Forbidden, match="set_stance"):
            fineline.compile(fn, backend="eager")(X)
    fineline.compile(f, backend=(probe := Probe()))(X)
    assert probe.graphs == 1


# -- run -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", [f, broken])
def test_run(fn):
    probe = Probe()
    c = fineline.compile(fn, backend=probe)
    again, by_original = fineline.run(c), fineline.run(fn)
    assert torch.equal(again(X), fn(X)) and probe.graphs == 0
    c(X)
    graphs = probe.graphs
    for only in (again, by_original):
        ran = probe.ran
        assert torch.equal(only(X), fn(X)) and probe.ran == ran + graphs
        assert torch.equal(only(LONG), fn(LONG)) and probe.ran == ran + graphs
    assert probe.graphs == graphs and again.__name__ == fn.__name__
    c(LONG)
    assert probe.graphs == 2 * graphs


def test_run_of_what_calls_compiled_code_and_of_modules():
    probe = Probe()
    c = fineline.compile(f, backend=probe)
    c(X)

    def outer(x):
        return c(x) * 2

    assert torch.equal(fineline.run(outer)(X), outer(X)) and probe.graphs == 1
    fineline.run(outer)(LONG)
    with fineline.run():
        c(LONG)
    assert probe.graphs == 1
    m = nn.Linear(4, 2)
    probe = Probe()
    cm = fineline.compile(m, backend=probe)
    cm(X)
    r = fineline.run(cm)
    assert isinstance(r, fineline.OptimizedModule) and r._orig_mod is m
    ran = probe.ran
    assert torch.equal(r(X), m(X)) and torch.equal(r(X[None]), m(X[None])) and (probe.graphs, probe.ran) == (1, ran + 1)


# -- error_on_graph_break --------------------------------------------------------------------------------------------------
def test_error_on_graph_break_around_a_call():
    c = fineline.compile(broken, backend="eager")
    with fineline.error_on_graph_break(True), pytest.raises(Unsupported) as caught:
        c(X)
    assert caught.value.id == "FL102"
    assert torch.equal(c(X), broken(X))
    with fineline.error_on_graph_break(True), fineline.error_on_graph_break(False):
        assert torch.equal(c(X), broken(X))


def test_error_on_graph_break_in_captured_code():
    def inside(x):
        fineline.graph_break()
        with fineline.error_on_graph_break(True):
            x = x + 1
            fineline.graph_break()
        return x

    def behind(x):
        with fineline.error_on_graph_break(True):
            x = x + 1
        fineline.graph_break()
        return x + 2

    @fineline.error_on_graph_break(True)
    def strict(x):
        with fineline.error_on_graph_break(False):
            fineline.graph_break()
        x = x + 1
        return broken(x) if x.shape[0] > 4 else x

    with pytest.raises(Unsupported):
        fineline.compile(inside, backend="eager")(X)
    c = fineline.compile(behind, backend="eager")
    for _ in range(3):
        assert torch.equal(c(X), X + 3)
    c = fineline.compile(lambda x: strict(x * 2), backend="eager")
    for _ in range(3):
        assert torch.equal(c(X), X * 2 + 1)
    with pytest.raises(Unsupported):
        c(LONG)
    with fineline.error_on_graph_break(False), pytest.raises(Unsupported):
        fineline.compile(broken, backend="eager", fullgraph=True)(X)


def test_the_flag_holds_behind_a_border_that_is_captured_again():
    def fn(x, n):
        with fineline.error_on_graph_break(True):
            x = x + 1
            with fineline.error_on_graph_break(False):
                n = fineline.disable(len)(n)
            if n > 2:
                fineline.graph_break()
        return x * n

    c = fineline.compile(fn, backend="eager")
    for _ in range(2):
        assert torch.equal(c(X, [1]), (X + 1))
    with pytest.raises(Unsupported):
        c(X, [1, 2, 3])
    assert torch.equal(c(X, [1, 2]), (X + 1) * 2)


# -- optimize --------------------------------------------------------------------------------------------------------------
def test_optimize_and_its_guard_hooks():
    exported, failed = [], []
    probe = Probe()

    @fineline.optimize(probe, guard_export_fn=exported.append, guard_fail_fn=failed.append)
    def fn(x, k):
        return x * k

    fn(X, 2), fn(X, 2)
    assert len(exported) == 1 and any("k is 2" in g for g in exported[0]) and not failed
    fn(X, 3)
    assert len(exported) == 2 and len(failed) == 1 and "k" in failed[0].reason and failed[0].orig_code is fn.__wrapped__.__code__
    assert fineline.optimize(disable=True)(f) is f
    with pytest.raises(Unsupported):
        fineline.optimize("eager", nopython=True)(broken)(X)
    with pytest.raises(Unsupported), fineline.error_on_graph_break(False):
        fineline.optimize_assert("eager")(broken)(X)
    assert torch.equal(fineline.optimize("eager")(broken)(X), broken(X))


@pytest.mark.parametrize("gives", [lambda gm, inputs: gm, lambda gm, inputs: gm.forward], ids=["the graph", "its forward"])
def test_nested_regions_that_a_backend_gives_back_have_gradients(gives):
    inner = fineline.nested_compile_region(lambda x, w: (x @ w).sin())

    def f(x, w):
        for _ in range(3):
            x = inner(x, w)
        return x.sum()

    compiled = fineline.compile(f, backend=gives)
    for _ in range(3):
        x, w = torch.rand(3, 3), torch.rand(3, 3)
        pairs = [[t.clone().requires_grad_() for t in (x, w)] for _ in range(2)]
        compiled(*pairs[0]).backward(), f(*pairs[1]).backward()
        assert all(torch.equal(a.grad, b.grad) for a, b in zip(*pairs, strict=True))


def test_nested_compile_region():
    @fineline.nested_compile_region
    def layer(x):
        return x.sin() * 2

    @fineline.nested_compile_region(max_reuse_entries=4)
    def other(x):
        return x + 1

    def fn(x):
        return other(layer(layer(x)))

    c = fineline.compile(fn, backend=(probe := Probe()), fullgraph=True)
    for _ in range(2):
        assert torch.equal(c(X), fn(X))
    assert probe.graphs == 1
