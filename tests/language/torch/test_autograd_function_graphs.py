"""What the graphs of custom autograd functions hold, for sizes that vary too, and what happens behind the call."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import fineline
from tests.language.torch.autograd_functions import (
    DOUBLE,
    DROP,
    EAGER,
    EXP,
    LAZY,
    PADS,
    PASSES,
    SAME,
    UNMARKED,
    Doubled,
    Mixed,
    Needs,
    Sine,
    Sizes,
    WithDefaults,
    cosine,
    saves,
    unary,
)
from tests.oracle import t


@torch.library.custom_op("fineline_tests::tell", mutates_args=())
def tell(x: torch.Tensor) -> torch.Tensor:
    print("custom operator")
    return x * 2


TELL = unary(lambda ctx, x: tell(x), lambda ctx, grad: tell(grad), "Tell")


SineOnce = unary(saves, once_differentiable(cosine), "SineOnce")


def captured(fn: Any, backend: Any = None) -> tuple[Any, list[torch.fx.GraphModule]]:
    graphs: list[torch.fx.GraphModule] = []

    def keep(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    fineline.reset()
    return fineline.compile(fn, backend=backend or keep), graphs


def operators(graphs: list[torch.fx.GraphModule]) -> list[str]:
    parts = [m for gm in graphs for m in gm.modules() if isinstance(m, torch.fx.GraphModule)]
    return [str(getattr(n.target, "__name__", n.target)) for m in parts for n in m.graph.nodes if n.op.startswith("call_")]


def bodies(fn: Any, *args: Any) -> int:
    """How many graphs the one graph of ``fn`` holds."""
    compiled, graphs = captured(fn)
    for _ in range(2):
        compiled(*args)
    assert len(graphs) == 1
    return len([m for m in graphs[0].modules() if isinstance(m, torch.fx.GraphModule)]) - 1


def test_forward_and_backward_are_graphs() -> None:
    compiled, graphs = captured(lambda x: Sine.apply(x) + 1)
    compiled(t(grad=True))
    assert {"Sine_apply", "sin", "cos"} <= set(operators(graphs))


ATEN = unary(lambda ctx, x: torch.ops.aten.mul.Tensor(x, 2), lambda ctx, grad: torch.ops.aten.mul(grad, 2), "Aten")


@pytest.mark.parametrize("function", [Sine, SineOnce, ATEN, SAME, EXP, EAGER, DROP, WithDefaults, PADS], ids=lambda f: f.__name__)
def test_captured_as_two_graphs(function: Any) -> None:
    assert bodies(lambda x: function.apply(x), t(grad=True)) == 2


def test_captured_with_a_backward_for_each_set_of_gradients() -> None:
    assert bodies(lambda x: LAZY.apply(x), t(grad=True)) == 5
    assert bodies(lambda x: PASSES.apply(x), t(grad=True)) == 3


@pytest.mark.parametrize("function", [UNMARKED, *DOUBLE], ids=lambda f: f.__name__)
def test_captured_as_one_call(function: Any) -> None:
    compiled, graphs = captured(lambda x: function.apply(x))
    compiled(t(grad=True))
    assert all([len([m for m in gm.modules() if isinstance(m, torch.fx.GraphModule)]) == 1 for gm in graphs])


@pytest.mark.parametrize("function", [PADS, *DOUBLE[-2:]], ids=lambda f: f.__name__)
def test_state_changes_before_the_backward(function: Any) -> None:
    def gradients(fn: Any) -> list[torch.Tensor]:
        found = []
        for now in (False, True, False):
            x = t(grad=True)
            y = fn(x)
            torch.use_deterministic_algorithms(now)
            y.sum().backward()
            torch.use_deterministic_algorithms(False)
            found.append(x.grad)
        return found

    compiled, _ = captured(lambda x: function.apply(x))
    assert all(map(torch.equal, gradients(compiled), gradients(function.apply)))


def test_code_inside_a_backward_reads_a_global() -> None:
    space: dict[str, Any] = {"SCALE": 2.0, "torch": torch}
    # What asks for the grad mode gets no graph: a compiler looks into the function as it is.
    exec("def backward(ctx, grad):\n    return grad * (torch.is_grad_enabled() + sum(SCALE for _ in range(2)))", space)
    function = unary(lambda ctx, x: x * 2, space["backward"], "Scaled")
    compiled, graphs = captured(lambda x: function.apply(x))
    for scale in (2.0, 2.0, 5.0):
        space["SCALE"] = scale
        compiled(t(grad=True))
    assert len(graphs) == 2


def test_arguments_of_all_kinds_are_captured() -> None:
    assert bodies(lambda x, y: Mixed.apply(x, 3.0, y, ("a", 1)), t(grad=True), t(1, grad=True)) == 2
    assert bodies(lambda x, y: Needs.apply(x, y) + Needs.apply(x, x), t(grad=True), t(1, grad=True)) == 4


HUNDRED = unary(saves, lambda ctx, grad: grad * 100, "Hundred")


def _applies(ctx, grad):
    (x,) = ctx.saved_tensors
    return HUNDRED.apply(grad * x)


APPLIES = unary(saves, _applies, "Applies")
FLIPS = unary(lambda ctx, x: x.flip(0), lambda ctx, grad: FLIPS.apply(grad * grad), "Flips")


@pytest.mark.parametrize("function", [Sine, SineOnce, EXP, APPLIES, FLIPS], ids=lambda f: f.__name__)
def test_second_derivatives(function: Any) -> None:
    def outcome(fn: Any) -> Any:
        x = t(grad=True)
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        try:
            return g, torch.autograd.grad(g.sum(), x)[0]
        except RuntimeError as e:
            return g, str(e)

    compiled, graphs = captured(lambda x: function.apply(x))
    expected = outcome(lambda x: function.apply(x))
    for _ in range(2):
        found = outcome(compiled)
        assert torch.equal(expected[0], found[0])
        assert torch.equal(expected[1], found[1]) if isinstance(expected[1], torch.Tensor) else expected[1] == found[1]
    assert len(operators(graphs)) > (function is not FLIPS)


# -- sizes -----------------------------------------------------------------------------------------------------------------


class Sorts(Function):
    """One result has no gradient."""

    @staticmethod
    def forward(ctx, x):
        values, at = x.sort(0)
        ctx.mark_non_differentiable(at)
        ctx.save_for_backward(at)
        return values, at

    @staticmethod
    def backward(ctx, grad, _):
        (at,) = ctx.saved_tensors
        return torch.zeros_like(grad).scatter_(0, at, grad)


OF_SIZES: dict[str, Any] = {
    "sizes": lambda x: Sizes.apply(x, 3)[0] + Sizes.apply(x, x.shape[0])[1],
    "plain": lambda x: Sine.apply(x) + SineOnce.apply(x) + EXP.apply(x),
    "setup": lambda x: WithDefaults.apply(x) * WithDefaults.apply(x, float(x.shape[0])),
    "needs": lambda x: Needs.apply(x, x.detach()) + Needs.apply(x, x),
    "constant": lambda x: sum(Sorts.apply(x)),
    "lazy": lambda x: LAZY.apply(x)[0] + 1,
    "dirty": lambda x: Doubled.apply(x * 1, x)[0],
    "nested": lambda x: APPLIES.apply(x),
    "argument": lambda x: SAME.apply(x) + 1,
    "random": lambda x: DROP.apply(x),
    "one call": lambda x: DOUBLE[-1].apply(x) + 1,
}
WAYS: dict[str, dict[str, Any]] = {"changed": {}, "all": {"dynamic": True}, "fake": {"options": {"first_call": "compiled"}}}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OF_SIZES)
def test_six_sizes_take_two_captures(name: str, way: str, backend: str) -> None:
    fn, captures = OF_SIZES[name], []

    def count(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        captures.append(gm)
        return fineline.backends.registry.lookup_backend(backend)(gm, inputs)

    fineline.reset()
    compiled = fineline.compile(fn, backend=count, **WAYS[way])
    for rows in (3, 5, 7, 2, 11, 13):
        inputs, outs = [t(rows, rows, 4, grad=True) for _ in range(2)], []
        for run, x in zip((fn, compiled), inputs, strict=True):
            torch.manual_seed(rows)
            outs.append(run(x))
            outs[-1].square().sum().backward()
        torch.testing.assert_close(*outs)
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
    # The graphs before the call of one that runs eagerly, in its forward, and after it.
    assert len(captures) <= (6 if name == "one call" else 2)


def test_custom_operators_run_once(capsys: pytest.CaptureFixture) -> None:
    compiled, _ = captured(lambda x: TELL.apply(x))
    for _ in range(2):
        y = compiled(t(grad=True))
        assert capsys.readouterr().out == "custom operator\n"
        y.sum().backward()
        assert capsys.readouterr().out == "custom operator\n"


def twice(fn: Any) -> str:
    x = t(grad=True)
    y = fn(x)
    y.sum().backward()
    with pytest.raises(RuntimeError) as e:
        y.sum().backward()
    return str(e.value)


def changed(fn: Any) -> str:
    x = t(grad=True) * 1
    y = fn(x)
    x.add_(1)
    with pytest.raises(RuntimeError) as e:
        y.sum().backward()
    return str(e.value).partition(";")[0]


@pytest.mark.parametrize("misuse", [twice, changed], ids=lambda f: f.__name__)
def test_saved_tensors_are_pytorchs(misuse: Any) -> None:
    compiled, _ = captured(lambda x: Sine.apply(x))
    for _ in range(2):
        assert misuse(compiled) == misuse(lambda x: Sine.apply(x))


def test_saved_tensors_hooks() -> None:
    def packed(fn: Any) -> list[Any]:
        seen: list[Any] = []

        def pack(x: torch.Tensor) -> torch.Tensor:
            seen.append(("pack", tuple(x.shape)))
            return x

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: seen.append("unpack") or x):
            y = fn(t(grad=True))
        y.sum().backward()
        return seen

    compiled, _ = captured(lambda x: Sine.apply(x))
    for _ in range(2):
        assert packed(compiled) == packed(lambda x: Sine.apply(x))


def test_name_of_the_history() -> None:
    compiled, _ = captured(lambda x: Sine.apply(x))
    assert [type(compiled(t(grad=True)).grad_fn).__name__ for _ in range(2)] == ["SineBackward"] * 2


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compilers_see_both(backend: str) -> None:
    def fn(x: torch.Tensor, y: torch.Tensor) -> Any:
        a, b, _ = Mixed.apply(x * 1, 3.0, y, ("a", 1))
        return Sine.apply(a) * EXP.apply(b) + SineOnce.apply(x) + SAME.apply(x)

    compiled, _ = captured(fn, backend)
    for k in range(2):
        inputs = [[t(k, grad=True), t(k + 5, grad=True)] for _ in range(2)]
        outs = [fn(*inputs[0]), compiled(*inputs[1])]
        for out in outs:
            out.square().sum().backward()
        torch.testing.assert_close(*outs)
        for a, b in zip(*inputs, strict=True):
            torch.testing.assert_close(a.grad, b.grad)
