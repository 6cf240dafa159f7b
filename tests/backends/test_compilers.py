"""The three backends run a graph as eager does, and leave the world around them alone."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import fineline
from fineline.backends.invoke import compile_graph
from fineline.backends.registry import Backend, lookup_backend
from fineline.errors import BackendFailed

P = nn.Parameter


def graph(build: Callable[..., Sequence[Any]], inputs: int) -> fx.GraphModule:
    """A graph as capture makes them: tensors in as placeholders, a tuple out."""
    g = fx.Graph()
    g.output(tuple(build(g, *(g.placeholder(f"a{i}") for i in range(inputs)))))
    return fx.GraphModule(nn.Module(), g)


@dataclass
class Case:
    """A graph, and a function that makes fresh equal inputs."""

    build: Callable[..., Sequence[Any]]
    inputs: Callable[[], list[torch.Tensor]]
    grad: bool = True


def batch_norm(g: fx.Graph, x: Any, w: Any, b: Any, mean: Any, var: Any, count: Any, lin: Any) -> Sequence[Any]:
    y = g.call_function(F.batch_norm, (x, mean, var, w, b, True, 0.1, 1e-5))
    g.call_method("add_", (count, 1))
    return (g.call_function(F.gelu, (g.call_function(F.linear, (y, lin)),)),)


def batch_norm_inputs() -> list[torch.Tensor]:
    return [torch.randn(8, 4), P(torch.ones(4)), P(torch.zeros(4)), torch.zeros(4), torch.ones(4), torch.tensor(0), P(torch.randn(3, 4))]


def grad_mode(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    y = g.call_function(torch.mul, (x, w))
    g.call_function(torch._C._set_grad_enabled, (False,))
    z = g.call_function(torch.mul, (y, w))
    g.call_function(torch._C._set_grad_enabled, (True,))
    return (g.call_function(torch.add, (y, z)), z)


def grad_mode_left_off(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    y = g.call_function(torch.mul, (x, w))
    g.call_function(torch._C._set_grad_enabled, (False,))
    return (y, g.call_function(torch.mul, (y, w)))


def overlapping(g: fx.Graph, x: Any, view: Any) -> Sequence[Any]:
    g.call_method("add_", (x, 1))
    return (g.call_function(torch.mul, (view, 2)), g.call_method("view", (x, 3, 2)))


def overlapping_inputs() -> list[torch.Tensor]:
    x = torch.arange(6.0)
    return [x, x[2:4]]


def becomes_differentiable(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    return (g.call_function(torch.mul, (g.call_method("add_", (x, w)), 2)),)


def reshaped_in_place(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    g.call_method("t_", (x,))
    return (g.call_function(F.linear, (x, w)),)


def autocast(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    mode = g.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    y = g.call_function(F.linear, (x, w))
    g.call_function(torch.amp.autocast_mode._exit_autocast, (mode,))
    return (y, g.call_function(F.linear, (x, w)))


def odd_outputs(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    y = g.call_function(torch.mul, (x, w))
    return (x, y, g.call_method("detach", (y,)), None, 3, g.call_method("size", (x, 0)))


def linear(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    return (g.call_function(torch.sin, (g.call_function(F.linear, (x, w)),)),)


def noise(g: fx.Graph, x: Any, w: Any) -> Sequence[Any]:
    y = g.call_function(F.dropout, (g.call_function(F.linear, (x, w)), 0.5, True))
    return (y, g.call_function(torch.rand, (3,)))


def two(*shapes: tuple[int, ...]) -> Callable[[], list[torch.Tensor]]:
    return lambda: [torch.randn(shapes[0]), P(torch.randn(shapes[1]))]


CASES = {
    "batch_norm": Case(batch_norm, batch_norm_inputs),
    "grad_mode": Case(grad_mode, two((4,), (4,))),
    "grad_mode_left_off": Case(grad_mode_left_off, two((4,), (4,))),
    "overlapping": Case(overlapping, overlapping_inputs, grad=False),
    "becomes_differentiable": Case(becomes_differentiable, two((4,), (4,))),
    "reshaped_in_place": Case(reshaped_in_place, two((8, 4), (3, 8)), grad=False),
    "autocast": Case(autocast, two((4, 8), (8, 8))),
    "odd_outputs": Case(odd_outputs, two((8, 8), (8, 8))),
    "linear_inference": Case(linear, two((4, 8), (8, 8)), grad=False),
}


def world(run: Callable[..., Any], case: Case) -> list[Any]:
    """All that one call leaves behind: outputs, grad mode, inputs afterwards, gradients."""
    torch.manual_seed(0)
    inputs = case.inputs()
    with torch.set_grad_enabled(case.grad):
        out = run(*inputs)
        mode = torch.is_grad_enabled()
    losses = [t.float().sum() for t in out if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn]
    if losses and case.grad:
        sum(losses).backward()  # type: ignore[union-attr]
    left = [mode, *(t if not isinstance(t, torch.Tensor) else (t.detach().clone(), t.requires_grad, t.dtype) for t in (*out, *inputs))]
    return left + [t.grad for t in inputs if t.is_leaf] + [any(o is t for t in inputs) for o in out]


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return torch.allclose(a, b, rtol=1e-2 if a.dtype == torch.bfloat16 else 1e-4, atol=1e-5)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("name", CASES)
def test_it_does_what_the_graph_does(name: str, backend: str) -> None:
    case = CASES[name]
    arity = len(case.inputs())
    want = world(graph(case.build, arity), case)
    with torch.set_grad_enabled(case.grad):
        compiled = compile_graph(lookup_backend(backend), graph(case.build, arity), case.inputs())
    for _ in range(2):
        got = world(compiled, case)
        assert alike(want, got), (want, got)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_inference_mode(backend: str) -> None:
    with torch.inference_mode():
        inputs = two((4, 8), (8, 8))()
        compiled = compile_graph(lookup_backend(backend), graph(linear, 2), inputs)
        (out,) = compiled(*inputs)
        assert out.is_inference() and alike(out, graph(linear, 2)(*inputs)[0])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_the_captured_graph_is_left_alone(backend: str) -> None:
    gm = graph(linear, 2)
    code, nodes = gm.code, list(gm.graph.nodes)
    compile_graph(lookup_backend(backend), gm, two((4, 8), (8, 8))())
    assert gm.code == code and list(gm.graph.nodes) == nodes


def test_aot_eager_draws_the_same_random_numbers() -> None:
    inputs = two((4, 8), (8, 8))()
    compiled = compile_graph(lookup_backend("aot_eager"), graph(noise, 2), inputs)
    torch.manual_seed(1)
    want = graph(noise, 2)(*inputs)
    torch.manual_seed(1)
    assert alike(list(want), list(compiled(*inputs)))


@pytest.mark.parametrize("given", [{"backend": "aot_eager"}, {"backend": "inductor", "options": {"fallback_random": True}}], ids=str)
def test_an_overload_whose_name_is_a_keyword(given: dict) -> None:
    drawn = []
    for fn in (integers := lambda x: (x.t() * 2).random_(2, 9), fineline.compile(integers, **given)):
        torch.manual_seed(0)
        drawn.append(torch.cat([fn(torch.ones(3, 4)).flatten(), torch.rand(4)]))
    assert torch.equal(*drawn)


@pytest.mark.parametrize("grad", [False, True])
def test_random_numbers_that_nobody_uses_are_drawn(grad: bool) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch.rand(3).mul_(2)
        y = torch.empty(3).normal_().zero_()
        torch.nn.functional.dropout(x, 0.5)
        return x.sin() + y.sum()

    compiled = fineline.compile(fn, backend="aot_eager")
    for _ in range(3):
        drawn = []
        for f in (fn, compiled):
            torch.manual_seed(0)
            f(torch.ones(2, requires_grad=grad))
            drawn.append(torch.rand(4))
        assert torch.equal(*drawn)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_what_is_asserted_without_a_text_is_asserted(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        torch._assert_async((x > 0).all())
        torch._assert_async((x < 9).all(), assert_msg="too large")
        return x + 1

    compiled = fineline.compile(fn, backend=backend)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Expected Tensor with single nonzero value"):
            compiled(-torch.ones(2))
    with pytest.raises(RuntimeError, match="too large"):
        compiled(torch.full((2,), 10.0))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))


def test_symbolic_sizes_stay_symbolic() -> None:
    mode = FakeTensorMode(shape_env=ShapeEnv())
    batch = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC, DimDynamic.STATIC])
    with torch.no_grad():
        fakes = [mode.from_tensor(torch.empty(4, 8), symbolic_context=batch), mode.from_tensor(torch.empty(8, 8), static_shapes=True)]
        compiled = compile_graph(lookup_backend("aot_eager"), graph(linear, 2), fakes)
        for rows in (4, 7):
            inputs = [torch.randn(rows, 8), torch.randn(8, 8)]
            assert alike(list(graph(linear, 2)(*inputs)), list(compiled(*inputs)))


def test_both_disk_caches_are_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    with torch.no_grad():
        for found in ("miss", "hit"):
            counters.clear()
            compile_graph(lookup_backend("inductor"), graph(linear, 2), two((4, 8), (8, 8))())
            assert counters["aot_autograd"][f"autograd_cache_{found}"] == 1, dict(counters["aot_autograd"])


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_parameters_are_not_kept_alive(backend: str) -> None:
    x, w = two((4, 8), (8, 8))()
    compiled = compile_graph(lookup_backend(backend), graph(linear, 2), [x, w])
    compiled(x, w)[0].sum().backward()
    gone = weakref.ref(w)
    gc.disable()
    try:
        del w
        assert gone() is None
    finally:
        gc.enable()


def test_a_backend_leaves_random_state_and_grad_mode_alone() -> None:
    def careless(gm: fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        random.random()
        torch.rand(3)
        torch.set_grad_enabled(False)
        return gm

    random.seed(0)
    torch.manual_seed(0)
    before = random.getstate(), torch.get_rng_state().tolist()
    compile_graph(lookup_backend(careless), graph(linear, 2), [])
    assert before == (random.getstate(), torch.get_rng_state().tolist())
    assert torch.is_grad_enabled()


def test_the_users_function_modes_see_nothing_of_a_compilation() -> None:
    calls: list[Any] = []

    class Spy(TorchFunctionMode):
        def __torch_function__(self, fn: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(fn)
            return fn(*args, **(kwargs or {}))

    inputs = two((4, 8), (8, 8))()
    with torch.device("cpu"), Spy():
        calls.clear()
        compiled = compile_graph(lookup_backend("aot_eager"), graph(linear, 2), inputs)
        assert calls == []
        torch.sin(inputs[0])
        assert calls == [torch.sin]
    assert torch.overrides._get_current_function_mode_stack() == []
    assert alike(list(compiled(*inputs)), list(graph(linear, 2)(*inputs)))


def test_a_backend_that_raises_is_named_with_its_cause() -> None:
    def refuses(gm: Any, inputs: Any) -> Any:
        raise ZeroDivisionError("no")

    with pytest.raises(BackendFailed, match="'refuses' raised ZeroDivisionError: no") as caught:
        compile_graph(lookup_backend(refuses), graph(linear, 2), [], where="train.py:3")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.where == "train.py:3" and "train.py:3" in str(caught.value)


def test_a_backend_that_returns_no_callable() -> None:
    for value, text in ((None, "None"), (3, "a int")):
        with pytest.raises(BackendFailed, match=f"returned {text}") as caught:
            compile_graph(lookup_backend(lambda gm, inputs, value=value: value), graph(linear, 2), [])
        assert caught.value.id == "FL302"


def test_an_interrupt_passes_through() -> None:
    def interrupted(gm: Any, inputs: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compile_graph(lookup_backend(interrupted), graph(linear, 2), [])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_mode_that_means_nothing_is_said(backend: str) -> None:
    found: Backend = lookup_backend(backend, mode="max-autotune")
    with pytest.warns(UserWarning, match="no modes and no options"):
        compile_graph(found, graph(linear, 2), two((4, 8), (8, 8))())


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}])
def test_an_inference_mode_inside_needs_no_graph_of_its_own(dynamic: bool | None, options: dict[str, Any]) -> None:
    """AOTAutograd fails at a view in an inference mode, and PyTorch's Python dispatcher after it."""

    def fn(x: torch.Tensor) -> Any:
        with torch.inference_mode():
            y = x * 2
            z = y[0] + 1
            with torch.inference_mode(False):
                w = x * 3
            seen = x.view(-1)
        return y, y.view(-1), z, x + 1, w, seen, torch.complex(y, y).conj()

    compiled = fineline.compile(fn, backend="aot_eager", dynamic=dynamic, fullgraph=True, options=options)
    for n in (2, 3, 4):
        xs = [torch.ones(n, 2, requires_grad=True) for _ in range(2)]
        got, expected = compiled(xs[0]), fn(xs[1])
        assert alike(list(got), list(expected))
        assert [(t.is_inference(), t.requires_grad) for t in got] == [(t.is_inference(), t.requires_grad) for t in expected]
        assert got[1].data_ptr() == got[0].data_ptr()
        (got[3] + got[4]).sum().backward()
        (expected[3] + expected[4]).sum().backward()
        assert alike([xs[0].grad], [xs[1].grad])
        with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
            got[0].add_(1)


def through_aot(gm: fx.GraphModule, inputs: list[Any]) -> Any:
    return compile_graph(lookup_backend("aot_eager"), gm, inputs)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor", through_aot])
def test_arguments_that_lie_on_each_other_are_written(backend: Any) -> None:
    """AOTAutograd takes memory for what it was before the write: the graph runs as it was captured."""

    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    compiled = fineline.compile(fn, backend=backend)
    for place in range(4):
        one, other = torch.arange(24.0).view(6, 4) + place, torch.arange(24.0).view(6, 4) + place
        cut = slice(1, 4) if place % 2 else slice(3, 6)
        torch.testing.assert_close(compiled(one[:3], one[cut]), fn(other[:3], other[cut]))
        assert torch.equal(one, other)
    said = next(e for e in compiled._region.reports.events if e.id == "FL435")
    assert said.line == fn.__code__.co_firstlineno + 1 and "lie on each other" in said.reason


@pytest.mark.parametrize("stance", [{"force_backend": "aot_eager"}, {"stance": "aot_eager_then_compile"}])
def test_arguments_that_lie_on_each_other_are_written_under_a_stance(stance: dict[str, str]) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return x + y

    compiled = fineline.compile(fn, backend="eager")
    with fineline.set_stance(**stance):
        one, other = torch.arange(24.0).view(6, 4), torch.arange(24.0).view(6, 4)
        torch.testing.assert_close(compiled(one[:3], one[1:4]), fn(other[:3], other[1:4]))
        assert torch.equal(one, other)


@pytest.mark.parametrize("options", [{}, {"first_call": "compiled"}], ids=str)
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_gradient_that_is_differentiated(backend: str, options: dict[str, Any]) -> None:
    """AOTAutograd has no second derivatives: what a gradient penalty differentiates runs as it was captured, and what follows is compiled."""
    net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    def penalty(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (slope,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
        return ((slope.norm(dim=1) - 1) ** 2).mean()

    def gradients(fn: Any, x: torch.Tensor) -> list[Any]:
        net.zero_grad()
        loss = fn(x)
        loss.backward()
        return [loss.detach(), *[p.grad if p.grad is None else p.grad.clone() for p in net.parameters()]]

    compiled = fineline.compile(penalty, backend=backend, options=options)
    for n in (3, 3, 5):
        x = torch.randn(n, 6)
        assert alike(gradients(compiled, x), gradients(penalty, x))
    said = [e for e in compiled._region.reports.events if e.id == "FL435"]
    assert said and said[0].reason.startswith("what it computes is differentiated twice")


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_batch_norm_trains_with_symbolic_sizes(backend: str, grad: bool) -> None:
    """Its correction is a float that depends on sizes: AOTAutograd looks for these among the inputs of the graph.

    Inductor (torch 2.13) can't compile the backward pass, under ``torch.compile`` neither.
    """

    def net() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU())

    eager, captured = net(), net()
    compiled = fineline.compile(captured, backend=backend, dynamic=True)
    for batch, side in ((2, 6), (3, 6), (4, 9)):
        x, y = (torch.arange(batch * 2.0 * side * side).view(batch, 2, side, side).sin().requires_grad_(grad) for _ in range(2))
        a, b = eager(x), compiled(y)
        assert alike(a, b) and alike([*eager.buffers()], [*captured.buffers()])
        if backend == "aot_eager":
            a.square().sum().backward()
            b.square().sum().backward()
            assert not grad or alike(x.grad, y.grad)
            assert alike([p.grad for p in eager.parameters()], [p.grad for p in captured.parameters()])


def partly_inferred(x: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        scale = x.view(-1).sum() * 2
    return x.sin() * 2 + scale.clone()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("within", [
    lambda x: checkpoint(partly_inferred, x, use_reentrant=False) + 1,
    lambda x: torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: partly_inferred(x).cos(), (x,)),
], ids=["checkpoint", "cond"])  # fmt: skip
def test_an_inference_mode_in_a_graph_of_a_graph(within: Any, dynamic: bool | None) -> None:
    compiled = fineline.compile(within, backend="aot_eager", dynamic=dynamic, fullgraph=True)
    for n in (3, 3, 4):
        xs = [torch.linspace(-1.5, 1, n).requires_grad_() for _ in range(2)]
        a, b = compiled(xs[0]), within(xs[1])
        assert alike(a, b)
        a.sum().backward()
        b.sum().backward()
        assert alike(xs[0].grad, xs[1].grad)


@torch.library.custom_op("compilers::without_fake", mutates_args=())
def without_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 2


@pytest.mark.parametrize("suppress", [False, True])
def test_a_backend_that_fails_inside_of_a_transform_leaves_it(suppress: bool) -> None:
    def fn(x: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda a: (a * without_fake(z)).sum())(x) * 2

    compiled = fineline.compile(fn, backend="aot_eager", options={"suppress_errors": suppress})
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3), torch.ones(3)), torch.full((3,), 4.0))
        assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_an_operator_without_a_fake_kernel_runs_between_graphs(backend: str) -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return without_fake(x.sin() + 1).cos() * 3

    compiled = fineline.compile(fn, backend=backend)
    for n in range(3):
        x = torch.full((2,), float(n))
        torch.testing.assert_close(compiled(x), fn(x))
    strict = fineline.compile(fn, backend=backend, fullgraph=True)
    with pytest.raises(fineline.errors.Unsupported, match="FL102.*without_fake.*does not run on fake tensors"):
        strict(torch.ones(2))


def test_a_backend_that_returns_the_code_of_a_copy() -> None:
    """The copy runs with what the backend has changed in it, and not the captured graph."""

    def cosines(gm: torch.fx.GraphModule, inputs: list) -> Callable:
        own = copy.deepcopy(gm)
        for node in own.graph.nodes:
            if node.target is torch.sin:
                node.target = torch.cos
        own.recompile()
        return own.forward

    compiled = fineline.compile(lambda x: torch.sin(x) + 1, backend=cosines)
    compiled(torch.ones(2))
    assert torch.equal(compiled(torch.ones(2)), torch.cos(torch.ones(2)) + 1)
