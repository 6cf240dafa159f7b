"""Marks, stances, blocks and settings of PyTorch's, on fineline."""

from __future__ import annotations

import functools
import gc
import logging

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs

import fineline
from fineline.errors import Forbidden, Recompiled
from fineline.report.events import LISTENERS
from tests.install.captured import X, broken, f, graphs

exc = torch._dynamo.exc
dynamo = torch._dynamo


def test_a_stance_from_before(installed):
    fineline.uninstall()
    counter = CompileCounter()
    with torch.compiler.set_stance("force_eager"):
        fineline.install()
        compiled = torch.compile(f, backend=counter)
        compiled(X)
        assert counter.frame_count == 0
        fineline.uninstall()
        compiled(X)
        assert counter.frame_count == 1
    torch._dynamo.reset()
    fineline.install()
    compiled(torch.ones(2))
    assert counter.frame_count == 2


@pytest.mark.parametrize("breaks", ["any", "declared"])
def test_a_block_is_captured_around_once(installed, breaks):
    fineline.install(breaks=breaks)

    def blocked(x):
        with torch.compiler.disable(reason="slow"):
            x = x * 2
        return x.sin()

    heard = []
    LISTENERS.all += (heard.append,)
    try:
        assert graphs(blocked) == [["sin"]]
        gc.collect()
        assert graphs(blocked) == [["sin"]]
    finally:
        LISTENERS.all = tuple([e for e in LISTENERS.all if e != heard.append])
    assert {e.id for e in heard if e.kind == "break"} == {"FL430"} and not [e for e in heard if e.kind == "recompile"]


# -- names that say little to fineline ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "decorate",
    [
        lambda fn: dynamo.dont_skip_tracing(fn), lambda fn: dynamo.disable_nested_graph_breaks(fn), lambda fn: dynamo.nonstrict_trace(fn),
        lambda fn: dynamo.patch_dynamo_config(capture_scalar_outputs=True)(fn), lambda fn: dynamo.override_cudagraphs(fwd=False)(fn),
        lambda fn: dynamo.dont_skip_tracing()(fn), lambda fn: dynamo.error_on_graph_break(False)(fn),
    ],
    ids=range(7),
)  # fmt: skip
def test_decorators_are_captured_through(installed, decorate):
    def mine(x):
        return x.sin()

    decorated = decorate(mine)
    assert torch.equal(decorated(X), X.sin())
    [found] = graphs(lambda x: decorated(x) * 2)
    assert len(found) >= 2
    fineline.uninstall()
    assert torch.equal(decorated(X), X.sin())


@pytest.mark.parametrize(
    "context",
    [
        lambda: dynamo.patch_dynamo_config(capture_scalar_outputs=True), lambda: dynamo.override_cudagraphs(fwd=False),
        lambda: dynamo.disable_nested_graph_breaks(), lambda: dynamo.dont_skip_tracing(), lambda: dynamo.error_on_graph_break(False),
    ],
    ids=range(5),
)  # fmt: skip
def test_blocks_are_captured_through(installed, context):
    def block(x):
        with context():
            return x.sin() + 1

    assert graphs(block) == [["sin", "add"]]
    with context():
        assert graphs(f) == [["sin", "add"]]


@pytest.mark.parametrize("name", ["skip_frame", "step_unsupported", "graph_break"])
def test_calls_that_break_the_graph(installed, name):
    def breaks(x):
        x = x.sin()
        getattr(dynamo, name)("because")
        return x + 1

    assert graphs(breaks) == [["sin"], ["add"]]


def test_patching_settings_is_real_in_eager_code(installed):
    with dynamo.patch_dynamo_config(capture_scalar_outputs=True):
        assert dynamo.config.capture_scalar_outputs is True
    assert dynamo.config.capture_scalar_outputs is False


# -- settings -----------------------------------------------------------------------------------------------------------------
def failing(gm, inputs):
    raise ValueError("no")


@pytest.mark.parametrize("name", ["recompile_limit", "cache_size_limit"])
def test_the_recompile_limit(installed, name):
    counter = CompileCounter()
    compiled = torch.compile(f, backend=counter, dynamic=False)
    own = torch.compile(f, backend=(other := CompileCounter()), recompile_limit=5, dynamic=False)
    with dynamo.config.patch(**{name: 3}):
        for n in range(1, 10):
            assert torch.equal(compiled(X[:0].repeat(n)), f(X[:0].repeat(n))) and torch.equal(compiled(torch.ones(n)), f(torch.ones(n)))
            own(torch.ones(n))
        assert (counter.frame_count, other.frame_count) == (3, 5)
    for n in range(1, 20):
        compiled(torch.ones(n))
        own(torch.ones(n))
    assert (counter.frame_count, other.frame_count) == (8, 5)


def test_errors_that_settings_ask_for(installed):
    strict = torch.compile(f, backend="eager")
    broken = torch.compile(lambda x: (dynamo.graph_break(), x.sin())[1], backend="eager")
    with dynamo.config.patch(error_on_recompile=True):
        for compiled in (strict, broken):
            compiled(X), compiled(X)
            with pytest.raises(exc.RecompileError, match="size"):
                compiled(torch.ones(2, 2))
    assert torch.equal(strict(torch.ones(2, 2)), f(torch.ones(2, 2)))
    limited = torch.compile(f, backend="eager")
    with dynamo.config.patch(fail_on_recompile_limit_hit=True, recompile_limit=1):
        limited(X)
        for _ in range(2):
            with pytest.raises(exc.FailOnRecompileLimitHit):
                limited(torch.ones(2, 2))


def test_what_install_and_the_region_say_stands_by_the_settings(installed):
    """The region's own options above them, the defaults of the installation below."""
    fineline.install(options={"recompile_limit": 2})
    counters = [CompileCounter() for _ in range(3)]
    by_default, by_setting, own = [
        torch.compile(f, backend=counter, dynamic=False, recompile_limit=limit) for counter, limit in zip(counters, (None, None, 3), strict=True)
    ]
    for n in range(1, 9):
        by_default(torch.ones(n))
        with dynamo.config.patch(recompile_limit=4):
            by_setting(torch.ones(n)), own(torch.ones(n))
    assert [counter.frame_count for counter in counters] == [2, 4, 3]


def test_errors_that_settings_suppress(installed, caplog):
    compiled = torch.compile(f, backend=failing)
    strict = torch.compile(lambda x: (print(end=""), x.sin())[1], backend="eager", fullgraph=True)
    with pytest.raises(exc.BackendCompilerFailed):
        compiled(X)
    with dynamo.config.patch(suppress_errors=True):
        for _ in range(2):
            assert torch.equal(compiled(X), f(X))
    assert [r.getMessage() for r in caplog.records if "suppress_errors" in r.getMessage() and "ValueError: no" in r.getMessage()]
    with pytest.raises(exc.Unsupported):
        strict(X)


def test_nothing_is_compiled(installed):
    earlier = torch.compile(f, backend=(counter := CompileCounter()))
    with dynamo.config.patch(disable=True):
        for compiled in (earlier, torch.compile(f, backend=counter), torch.compile(f, backend=counter, fullgraph=True)):
            assert torch.equal(compiled(X), f(X)) and counter.frame_count == 0
    assert torch.equal(earlier(X), f(X)) and counter.frame_count == 1


def test_other_settings_are_told_of_once(installed, caplog):
    caplog.set_level(logging.WARNING)
    with dynamo.config.patch(compiled_autograd=True, specialize_float=True, verbose=True):
        for _ in range(3):
            torch.compile(f, backend="eager")
    said = [r.getMessage() for r in caplog.records if r.name == "fineline"]
    assert len(said) == 2 and all("has no effect" in text for text in said)
    assert any("config.compiled_autograd = True" in text and "the backend compiles" in text for text in said)


def test_numbers_from_tensors_stay_in_the_graph(installed):
    def shaped(x):
        y = x[x > 0].sin().cos().sin().cos().sin().sum()
        return (y * x.sum().item()).sin().cos()

    for scalars, shapes, parts in ((True, True, 1), (True, False, 2), (False, False, 3)):
        compiled = torch.compile(shaped, backend=(counter := CompileCounter()))
        with dynamo.config.patch(capture_scalar_outputs=scalars, capture_dynamic_output_shape_ops=shapes):
            assert torch.equal(compiled(X), shaped(X)) and counter.frame_count == parts, (scalars, shapes)


# -- errors -------------------------------------------------------------------------------------------------------------------
def raised(call):
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def recompiled(**how):
    compiled = torch.compile(f, backend="eager", **how)
    compiled(X)
    return compiled(torch.ones(2, 2))


def forbidding():
    inner = dynamo.forbid_in_graph(lambda x: x)
    torch.compile(lambda x: inner(x), backend="eager")(X)


@pytest.mark.parametrize(
    "name, call",
    {
        "Unsupported": lambda: torch.compile(lambda x: 1 if x.sum() else 0, backend="eager", fullgraph=True)(X),
        "Unsupported ": lambda: torch.compile(lambda x: dynamo.graph_break(), backend="eager", fullgraph=True)(X),
        "Unsupported  ": forbidding,
        "BackendCompilerFailed": lambda: torch.compile(f, backend=failing)(X),
        "InvalidBackend": lambda: torch.compile(f, backend="no such backend"),
        "InvalidBackend ": lambda: torch.compile(f, backend=3),
        "FailOnRecompileLimitHit": lambda: recompiled(fullgraph=True, recompile_limit=1),
        "RecompileError": lambda: torch.compiler.set_stance("fail_on_recompile")(recompiled)(),
        "InternalTorchDynamoError": lambda: (_ for _ in ()).throw(fineline.errors.InternalError("a defect")),
        "TorchDynamoException": lambda: torch.compile(f, mode="no such mode"),
    }.items(),
)
def test_each_error_is_of_pytorchs_class(installed, name, call):
    error = raised(call)
    assert isinstance(error, getattr(exc, name.strip())) and isinstance(error, (fineline.errors.FinelineError, RuntimeError))
    assert isinstance(error, fineline.errors.FinelineError) and isinstance(error, exc.TorchDynamoException)
    assert error.id in str(error)


def test_what_the_code_raises_is_its_own(installed):
    """Where PyTorch would say TorchRuntimeError; which is a RuntimeError too."""
    error = raised(lambda: torch.compile(lambda x: x @ torch.ones(3), backend="eager")(X))
    assert type(error) is RuntimeError


# -- marks and stances -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("home", ["compiler", "_dynamo"])
def test_disable(installed, home):
    disable = getattr(torch, home).disable

    def plain(x):
        """Says what it does."""
        return x.cos()

    marks = [
        disable(plain),
        disable()(plain),
        disable(reason="slow")(plain),
        disable(plain, True, reason="slow"),
        disable(recursive=True)(plain),
    ]
    for hidden in marks:
        assert graphs(lambda x: hidden(x * 2) + 1) == [["mul"], ["add"]]  # noqa: B023
        assert hidden.__doc__ == plain.__doc__ and hidden.__name__ == "plain" and torch._dynamo.is_dynamo_disable_recursive(hidden)
    assert graphs(lambda x: plain(x * 2) + 1) == [["mul", "cos", "add"]]
    with pytest.raises(exc.Unsupported, match="slow") as caught:
        torch.compile(lambda x: marks[2](x), backend="eager", fullgraph=True)(X)
    assert "test_controls.py" in str(caught.value)

    @disable(recursive=False)
    def frame(x):
        return f(x.cos())

    assert graphs(lambda x: frame(x * 2) + 1) == [["mul"], ["sin", "add"], ["add"]]
    m = nn.Linear(4, 4)
    assert disable(m) is m
    compiled = torch.compile(f, backend=(counter := CompileCounter()))
    with disable():
        compiled(X)
    assert counter.frame_count == 0
    # What was marked while installed is marked for Dynamo as well.
    fineline.uninstall()
    for hidden in marks[:3]:
        counter = CompileCounter()
        torch.compile(lambda x: hidden(x * 2) + 1, backend=counter)(X)  # noqa: B023
        assert counter.op_count == 2
        torch._dynamo.reset()


def test_marks(installed):
    @torch._dynamo.allow_in_graph
    def whole(x):
        return x.sin().cos()

    @torch.compiler.assume_constant_result
    def constant(k):
        return k * 2

    @torch._dynamo.forbid_in_graph
    def forbidden(x):
        return x

    assert graphs(lambda x: whole(x) * constant(3)) == [["whole", "mul"]]
    with pytest.raises(Forbidden) as caught:
        torch.compile(lambda x: forbidden(x), backend="eager")(X)
    assert isinstance(caught.value, (exc.Unsupported, AssertionError))
    torch._dynamo.disallow_in_graph(torch.sub)
    try:
        assert graphs(lambda x: (x * 2 - x).sin()) == [["mul"], ["sin"]]
    finally:
        torch._dynamo.reset()
    assert len(graphs(lambda x: (x * 2 - x).sin())) == 1

    def other(x):
        return x.tan()

    @torch.compiler.substitute_in_graph(other)
    def instead(x):
        return x.exp()

    recorded = EagerAndRecordGraphs()
    assert torch.equal(torch.compile(lambda x: other(x), backend=recorded)(X), X.exp())
    with pytest.raises(RuntimeError, match="disable"):
        torch._dynamo.disallow_in_graph(f)
    fineline.uninstall()
    counter = EagerAndRecordGraphs()
    torch.compile(lambda x: whole(x), backend=counter)(X)
    assert [n.name for n in counter.graphs[0].graph.nodes if n.op.startswith("call")] == ["whole"]


def test_is_compiling_and_shapes(installed):
    def asks(x):
        torch._dynamo.mark_static(x, 0)
        if torch.compiler.is_compiling() and torch.compiler.is_dynamo_compiling() and torch._dynamo.is_compiling():
            return x * 2
        return x

    y = torch.ones(3, 4)
    torch._dynamo.mark_dynamic(y, 0)
    torch._dynamo.maybe_mark_dynamic(y, 1)
    torch._dynamo.mark_static_address(torch.ones(2))
    compiled = torch.compile(asks, backend="eager", fullgraph=True)
    for _ in range(2):
        assert torch.equal(compiled(y), y * 2)
    assert not torch.compiler.is_compiling()


def test_stances(installed):
    counter = CompileCounter()
    compiled = torch.compile(f, backend=counter)
    with torch.compiler.set_stance("force_eager"):
        compiled(X)
    assert counter.frame_count == 0
    compiled(X)

    @torch._dynamo.set_stance("fail_on_recompile")
    def strict(x):
        return compiled(x)

    strict(X)
    with pytest.raises(RuntimeError) as caught:
        strict(torch.ones(3))
    assert isinstance(caught.value, Recompiled) and isinstance(caught.value, exc.RecompileError)
    with pytest.raises(RuntimeError, match="fast"):
        torch.compiler.set_stance("fast")
    with pytest.raises(Forbidden):
        torch.compile(lambda x: (torch.compiler.set_stance("force_eager"), x + 1)[1], backend="eager")(X)
    with torch._dynamo.error_on_graph_break(True), pytest.raises(exc.Unsupported):
        torch.compile(broken, backend="eager")(X)
    assert torch.equal(torch._dynamo.run(compiled)(torch.ones(3)), f(torch.ones(3))) and counter.frame_count == 1

    @torch.compiler.nested_compile_region
    def layer(x):
        return x.sin()

    [found] = graphs(lambda x: layer(layer(x)), fullgraph=True)
    assert [name for name in found if name.startswith("invoke_subgraph")] == ["invoke_subgraph", "invoke_subgraph_0"]


def test_optimize_hooks_and_explain(installed):
    failures, guards = [], []
    made = torch._dynamo.optimize("eager", nopython=True, guard_fail_fn=failures.append, guard_export_fn=guards.append)(f)
    made(X), made(torch.ones(3))
    assert len(failures) == 1 and "size" in failures[0].reason and len(guards) == 2
    said = torch._dynamo.explain(broken)(X)
    assert len(said.graphs) == 2 and len(said.breaks) == 1
    assert len(torch._dynamo.explain(broken, X).graphs) == 2


def test_names_called_in_captured_code(installed):
    made = torch.compile(f, backend="eager")
    only = torch._dynamo.run(made)

    def compiles(x):
        return torch.compile(f, backend="eager")(x * 3) * 2

    def hides(x):
        return torch.compiler.disable(f)(x * 3) * 2

    def strict(x):
        with torch._dynamo.error_on_graph_break(True):
            x = x * 3
        return only(torch.compiler.nested_compile_region(f)(x)) * 2

    assert graphs(compiles) == [["mul", "sin", "add", "mul_0"]]
    assert graphs(hides) == [["mul"], ["mul"]]
    assert [len(names) for names in graphs(strict, fullgraph=True)] == [6]
    assert [e.id for e in torch._dynamo.explain(compiles)(X).breaks] == ["FL433"]

    @functools.wraps(torch.compiler.set_stance)
    def mine(x):
        return x + 1

    assert graphs(lambda x: mine(x)) == [["add"]]  # a copy of the door's entry is not one
