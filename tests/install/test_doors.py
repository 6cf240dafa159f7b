"""PyTorch's public names, before ``install``, while installed, and after ``uninstall``."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
import weakref

import pytest
import torch
import torch._dynamo
import torch._dynamo.testing
from torch import nn
from torch._dynamo.testing import AotEagerAndRecordGraphs, CompileCounter, CompileCounterWithBackend, EagerAndRecordGraphs

import fineline
from fineline.errors import BackendFailed, BadArgument, RecompileLimit, Undeclared, Unsupported
from tests.install.captured import X, broken, f

exc = torch._dynamo.exc
HOMES = [torch, torch.compiler, torch._dynamo, torch._dynamo.decorators, torch._dynamo.testing, torch._dynamo.eval_frame, nn.Module]


@pytest.fixture(autouse=True)
def put_back():
    yield
    fineline.uninstall()


def snapshot():
    return {(home.__name__, name): value for home in HOMES for name, value in vars(home).items() if not name.startswith("__")}


def is_fineline(compiled):
    return type(compiled).__module__.startswith("fineline")


# -- there and back ------------------------------------------------------------------------------------------------------------
def test_the_very_same_objects_are_back():
    before = snapshot()
    for _ in range(3):
        fineline.install()
        during = snapshot()
        fineline.install(breaks="declared")
        assert snapshot() == during
        assert is_fineline(torch.compile(f)) and torch.compile is not before["torch", "compile"]
        fineline.uninstall()
        after = snapshot()
        assert after.keys() == before.keys() and all(after[key] is before[key] for key in before)
        fineline.uninstall()
    changed = {key for key in before if during[key] is not before[key]}
    assert ("torch._dynamo.eval_frame", "optimize") not in changed and ("torch.compiler", "is_compiling") not in changed
    # From 2.14 on, torch.compiler has this name too.
    assert {name for home, name in changed if home == "torch.compiler"} - {"nonstrict_trace"} == {
        "allow_in_graph", "assume_constant_result", "disable", "list_backends", "nested_compile_region", "reset", "set_stance",
        "substitute_in_graph",
    }  # fmt: skip
    assert not is_fineline(torch.compile(f))
    assert not isinstance(fineline.compile(nn.Linear(2, 2)), torch._dynamo.OptimizedModule)


def test_what_somebody_else_put_there_stays(monkeypatch):
    fineline.install()

    def mine(fn, **how):
        return fn

    monkeypatch.setattr(torch, "compile", mine)
    fineline.uninstall()
    assert torch.compile is mine
    monkeypatch.undo()
    assert is_fineline(torch.compile(f)) is False  # the door that monkeypatch put back leads to PyTorch's own
    torch.compile = torch.compile.__wrapped__


def test_names_that_were_imported_while_installed_outlast_it(installed):
    compile, disable, reset, stance = torch.compile, torch.compiler.disable, torch._dynamo.reset, torch.compiler.set_stance
    fineline.uninstall()
    assert not is_fineline(compile(f, backend="eager")) and isinstance(stance("default"), torch._dynamo.decorators.set_stance)
    counter = CompileCounter()
    hidden = disable(f)
    compile(lambda x: hidden(x) * 2, backend=counter)(X)
    assert counter.op_count == 1 and reset() is None


def test_importing_fineline_loads_no_dynamo():
    code = "import fineline, sys; assert not [m for m in sys.modules if m.startswith('torch._dynamo')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_was_compiled_before_and_after_goes_on():
    counter = CompileCounter()
    theirs = torch.compile(f, backend=counter)
    theirs(X)
    fineline.install()
    assert torch.equal(theirs(X), f(X)) and counter.frame_count == 1
    theirs(torch.ones(2, 2))
    assert counter.frame_count == 2 and not is_fineline(theirs)
    ours = torch.compile(f, backend=(mine := CompileCounter()))
    module = torch.compile(nn.Linear(4, 2), backend=mine)
    in_place = nn.Linear(4, 2)
    in_place.compile(backend=mine)
    ours(X), module(X), in_place(X)
    fineline.uninstall()
    for compiled in (ours, module, in_place):
        compiled(X)
    assert mine.frame_count == 3
    module(X[None]), in_place(X[None])
    assert mine.frame_count == 5 and counter.frame_count == 2
    # Dynamo meets what fineline has compiled.
    assert torch.equal(torch.compile(lambda x: ours(x) * 2, backend="eager")(X), f(X) * 2)
    assert torch.equal(torch.compile(ours, backend="eager")(X), f(X))
    assert torch.equal(torch.compile(module, backend="eager")(X), module(X))
    torch._dynamo.reset()


# -- compile ---------------------------------------------------------------------------------------------------------------
def test_compile_in_all_its_forms(installed):
    for made in (
        torch.compile(f, backend="eager"), torch.compile(backend="eager")(f), torch.compile(model=f, backend="eager", dynamic=False),
        torch.compiler.compile(f, backend="eager"), torch.compile(f, backend="eager", name="it", isolate_recompiles=True),
        torch._dynamo.optimize("eager")(f), torch._dynamo.optimize_assert("eager")(f),
    ):  # fmt: skip
        assert is_fineline(made) and torch.equal(made(X), f(X)) and torch.equal(made(X), f(X))
        assert torch._dynamo.eval_frame.innermost_fn(made) is f
    assert torch.compile(f, disable=True) is f
    assert torch._dynamo.optimize(disable=True)(f) is f
    again = torch.compile(torch.compile(f, backend="eager"), backend=(counter := CompileCounter()))
    again(X)
    assert counter.frame_count == 1


def test_methods_and_classes(installed):
    counter = CompileCounter()

    class Thing:
        @torch.compile(backend=counter)
        def method(self, x):
            return x * 2

        @staticmethod
        @torch.compile(backend=counter)
        def static(x):
            return x * 3

    assert torch.equal(Thing().method(X), X * 2) and torch.equal(Thing().static(X), X * 3) and counter.frame_count == 2

    @torch.compile(backend=counter)
    class Callable:
        def __call__(self, x):
            return x * 4

    @torch.compile(backend=counter)
    class Module(nn.Module):
        def forward(self, x):
            return x * 5

    assert torch.equal(Callable()(X), X * 4) and torch.equal(Module()(X), X * 5) and counter.frame_count == 4


def test_module_compile_in_place(installed):
    m = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    keys = list(m.state_dict())
    seen = []
    m.register_forward_hook(lambda mod, args, out: seen.append(1))
    counter = CompileCounter()
    expected = m(X)
    assert m.compile(backend=counter) is None and type(m) is nn.Sequential and list(m.state_dict()) == keys
    assert is_fineline(m._compiled_call_impl)
    for _ in range(2):
        assert torch.equal(m(X), expected)
    assert counter.frame_count >= 1 and len(seen) == 3
    again = pickle.loads(pickle.dumps(nn.Sequential(m[0])))
    assert torch.equal(again(X), m[0](X))
    # Met inside a region, it is captured with it.
    outer = torch.compile(lambda x: m(x) * 2, backend=(other := CompileCounter()))
    for _ in range(2):
        assert torch.equal(outer(X), expected * 2)
    assert other.frame_count >= 1


def test_defaults():
    fineline.install(breaks="declared", backend=(counter := CompileCounter()))

    def prints(x):
        print(end="")
        return x + 1

    compiled = torch.compile(prints)
    with pytest.raises(Undeclared):
        compiled(X)
    assert torch.equal(torch.compile(f, fullgraph=True)(X), f(X)) and counter.frame_count == 1
    assert torch.equal(torch.compile(broken)(X), broken(X))
    m = nn.Linear(4, 4)
    m.compile()
    m(X)
    fineline.install()
    with pytest.raises(Undeclared):
        compiled(X)
    assert torch.equal(torch.compile(prints, backend="eager")(X), X + 1)
    fineline.install(policy=fineline.Policy(disable=f), backend="eager")
    with pytest.raises(Unsupported):
        torch.compile(lambda x: f(x), fullgraph=True)(X)
    with pytest.raises(BadArgument):
        fineline.install(breaks="some")
    with pytest.raises(TypeError):
        fineline.install(no_such_default=1)


# -- backends ----------------------------------------------------------------------------------------------------------------
def test_counting_backends(installed):
    counter = CompileCounter()
    compiled = torch.compile(broken, backend=counter)
    compiled(X), compiled(X)
    assert (counter.frame_count, counter.op_count) == (2, 2)
    counter.clear()
    compiled(torch.ones(2, 2))
    assert counter.frame_count == 2
    for name in ("eager", "aot_eager"):
        counted = CompileCounterWithBackend(name)
        compiled = torch.compile(f, backend=counted, fullgraph=True)
        assert torch.equal(compiled(X), f(X)) and torch.equal(compiled(X), f(X)) and (counted.frame_count, counted.op_count) == (1, 2)
    recorded = EagerAndRecordGraphs()
    torch.compile(f, backend=recorded)(X)
    assert [n.target for n in recorded.graphs[0].graph.nodes if n.op.startswith("call")]
    recorded = AotEagerAndRecordGraphs()
    compiled = torch.compile(f, backend=recorded)
    x = X.clone().requires_grad_()
    for _ in range(2):
        compiled(x).sum().backward()
    assert len(recorded.graphs) == 1 and len(recorded.fw_graphs) == 1 and len(recorded.bw_graphs) == 1


def test_backend_names(installed):
    seen = []

    def registered(gm, inputs):
        seen.append(gm)
        return gm.forward

    torch._dynamo.register_backend(registered, "registered_for_a_test")
    try:
        assert torch.equal(torch.compile(f, backend="registered_for_a_test")(X), f(X)) and len(seen) == 1
        assert {"registered_for_a_test", "eager", "inductor"} <= set(torch._dynamo.list_backends()) | set(torch.compiler.list_backends())
        with torch.compiler.set_stance(force_backend="registered_for_a_test"):
            torch.compile(f, backend="eager")(X)
        assert len(seen) == 2
        torch.compiler.set_default_backend("registered_for_a_test")
        torch.compile(f)(X)
        assert len(seen) == 3
    finally:
        torch.compiler.set_default_backend(None)
        torch._dynamo.backends.registry._BACKENDS.pop("registered_for_a_test", None)
        torch._dynamo.backends.registry._COMPILER_FNS.pop("registered_for_a_test", None)
    for name in ("aot_eager_decomp_partition", "pre_dispatch_eager", "eager_noexcept"):
        compiled = torch.compile(f, backend=name)
        assert torch.equal(compiled(X), f(X)) and torch.equal(compiled(X), f(X))


# -- what users catch --------------------------------------------------------------------------------------------------------
def test_errors_are_of_both_classes(installed):
    with pytest.raises(exc.Unsupported) as caught:
        torch.compile(broken, backend="eager", fullgraph=True)(X)
    error = caught.value
    assert isinstance(error, Unsupported) and isinstance(error, RuntimeError) and error.id == "FL102" and "graph_break" in error.msg
    assert type(error).__name__ == "Unsupported" and "next:" in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)

    def failing(gm, inputs):
        raise ValueError("no")

    with pytest.raises(exc.BackendCompilerFailed) as caught:
        torch.compile(f, backend=failing)(X)
    assert isinstance(caught.value, BackendFailed) and isinstance(caught.value.inner_exception, ValueError)
    assert caught.value.backend_name == "failing"
    with pytest.raises(exc.InvalidBackend):
        torch.compile(f, backend="no such backend")
    compiled = torch.compile(lambda x, k: x * k, backend="eager", fullgraph=True, recompile_limit=1)
    compiled(X, 1)
    with pytest.raises(exc.FailOnRecompileLimitHit) as caught:
        compiled(X, 2)
    assert isinstance(caught.value, RecompileLimit) and isinstance(caught.value, exc.Unsupported)
    for mistake in (lambda: torch.compile(f, mode="default", options={"max_autotune": True}), lambda: torch.compile(3)):
        with pytest.raises(RuntimeError) as caught:
            mistake()
        assert isinstance(caught.value, BadArgument)
    fineline.uninstall()
    with pytest.raises(Unsupported) as caught:
        compiled(X, 2)
    assert not isinstance(caught.value, RuntimeError) and pickle.loads(pickle.dumps(error)).id == "FL102"


def test_optimized_module(installed):
    before = fineline.compile(nn.Linear(4, 2), backend="eager")
    from torch._dynamo.eval_frame import OptimizedModule

    m = torch.compile(nn.Linear(4, 2), backend="eager")
    for compiled in (m, before):
        assert isinstance(compiled, torch._dynamo.OptimizedModule) and isinstance(compiled, OptimizedModule)
        assert isinstance(compiled, fineline.OptimizedModule) and isinstance(compiled, nn.Module)
    assert torch.equal(m(X), m._orig_mod(X)) and list(m.state_dict()) == ["_orig_mod.weight", "_orig_mod.bias"]
    assert list(before.state_dict()) == ["weight", "bias"]
    again = pickle.loads(pickle.dumps(m))
    assert torch.equal(again(X), m(X)) and m.train(False) is m and m.training is False
    fineline.uninstall()
    assert not isinstance(m, OptimizedModule) and torch.equal(m(X), again(X))


# -- counters ----------------------------------------------------------------------------------------------------------------
def test_counters(installed):
    counters = torch._dynamo.utils.counters
    counters.clear()
    compiled = torch.compile(broken, backend="eager")
    compiled(X), compiled(X)
    assert dict(counters["graph_break"]) == {"graph_break()": 1}
    assert counters["stats"] == {"unique_graphs": 2, "calls_captured": 2} and counters["frames"] == {"total": 2, "ok": 2}
    fineline.uninstall()
    compiled(torch.ones(2))
    assert counters["stats"]["unique_graphs"] == 2
    counters.clear()


def test_reset(installed):
    compiled = torch.compile(f, backend=(counter := CompileCounter()))
    for reset in (torch._dynamo.reset, torch.compiler.reset, torch._dynamo.reset_code_caches, torch._dynamo.testing.reset):
        compiled(X), compiled(X)
        reset()
    assert counter.frame_count == 4


# -- PyTorch's own use of its compiler -------------------------------------------------------------------------------------------
def test_torch_itself_keeps_its_compiler(installed):
    assert torch.equal(torch.cond(X.sum() > 0, lambda x: x + 1, lambda x: x - 1, (X,)), X + 1)

    def strict(x):
        if torch.compiler.is_compiling():
            return x * 2
        return x

    class M(nn.Module):
        def forward(self, x):
            return strict(x)

    assert torch.equal(torch.export.export(M(), (X,), strict=True).module()(X), X * 2)
    assert torch.equal(torch.export.export(M(), (X,)).module()(X), X * 2)
    gm, _ = torch._dynamo.export(lambda x: x.sin())(X)
    assert torch.equal(gm(X), X.sin())
    optimizer = torch.optim.Adam([nn.Parameter(X.clone())])
    optimizer.zero_grad()
    fineline.uninstall()
    assert torch.equal(torch.cond(X.sum() > 0, lambda x: x + 1, lambda x: x - 1, (X,)), X + 1)


def test_modules_compiled_in_place_are_freed(installed):
    m = nn.Linear(4, 4)
    m.compile(backend="eager")
    m(X), m(X)
    gone = weakref.ref(m)
    del m
    gc.collect()
    assert gone() is None


def test_threads(installed):
    counter = CompileCounter()
    compiled = torch.compile(f, backend=counter)
    errors = []

    def work(k):
        try:
            for i in range(20):
                x = torch.full((2 + (i + k) % 2,), float(i))
                assert torch.equal(compiled(x), f(x))
                with pytest.raises(exc.Unsupported):
                    torch.compile(broken, backend="eager", fullgraph=True)(x)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and counter.frame_count <= 4
