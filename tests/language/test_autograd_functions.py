"""Custom autograd functions with gradients: as two graphs where these can hold what they do, else as the one call that they are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
SCALE = 2.0
CALLS: list[str] = []


def unary(forward: Any, backward: Any, name: str = "Unary") -> Any:
    return type(name, (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def saves(ctx, x):
    ctx.save_for_backward(x)
    return x.sin()


def cosine(ctx, grad):
    (x,) = ctx.saved_tensors
    return grad * x.cos()


Sine = unary(saves, cosine, "Sine")
SineOnce = unary(saves, once_differentiable(cosine), "SineOnce")


class Mixed(Function):
    """Arguments of all kinds, several results, one gradient missing."""

    @staticmethod
    def forward(ctx, x, factor, y, flags):
        ctx.save_for_backward(x, None, y)
        ctx.factor, ctx.shape, ctx.flags = factor, x.shape, flags
        ctx.parts = [x * 2, {"y": y}]
        return x * factor, x + y, y.argmax()

    @staticmethod
    def backward(ctx, a, b, _):
        x, nothing, y = ctx.saved_tensors
        assert nothing is None and ctx.flags == ("a", 1)
        return (a * ctx.factor + b * ctx.parts[0] + ctx.parts[1]["y"]).view(ctx.shape), None, None, None


@table.snippet(grad=True)
def arguments_of_all_kinds(x, y):
    a, b, c = Mixed.apply(x * 1, 3.0, y, ("a", 1))
    return a, b, c, b.requires_grad


@table.snippet(grad=True)
def result_that_is_the_argument(x):
    y = x * 2
    return SAME.apply(y) + y, SAME.apply(y) is y


SAME = unary(lambda ctx, x: x, lambda ctx, grad: grad * 2, "Same")


def _exp(ctx, x):
    y = x.exp()
    ctx.save_for_backward(y)
    return y


EXP = unary(_exp, lambda ctx, grad: grad * ctx.saved_tensors[0], "Exp")


@table.snippet(grad=True)
def saved_result(x):
    return EXP.apply(x) + EXP.apply(EXP.apply(x * 0.5))


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, grad):
        x, y = ctx.saved_tensors
        return grad * y if ctx.needs_input_grad[0] else None, grad * x if ctx.needs_input_grad[1] else None


@table.snippet(grad=True)
def needs_input_grad(x, y):
    return Needs.apply(x, y), Needs.apply(x.detach(), y), Needs.apply(x, y.detach()), Needs.apply(x, x)


def _unmaterialized(ctx, x):
    ctx.set_materialize_grads(False)
    return x * 2, x * 3


def _of_two(ctx, a, b):
    return (a * 2 if a is not None else 0) + (b * 3 if b is not None else 0)


LAZY = unary(_unmaterialized, _of_two, "Lazy")
EAGER = unary(lambda ctx, x: (x * 2, x * 3), _of_two, "Eager")


@table.snippet(grad=True)
def gradients_that_nobody_gives(x):
    return LAZY.apply(x)[0], EAGER.apply(x)[1]


def _none_at_all(ctx, x):
    ctx.set_materialize_grads(False)
    return x * 2


NONE = unary(lambda ctx, x: x * 1, lambda ctx, grad: None, "Nothing")
PASSES = unary(_none_at_all, lambda ctx, grad: None if grad is None else grad * 2, "Passes")


@table.snippet(grad=True)
def gradients_that_are_none(x):
    return NONE.apply(PASSES.apply(x)) + PASSES.apply(x), NONE.apply(LAZY.apply(x)[0])


class Doubled(Function):
    """Writes into what it is given."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        x.mul_(2).add_(y)
        ctx.mark_dirty(x)
        return x, x * y

    @staticmethod
    def backward(ctx, a, b):
        (y,) = ctx.saved_tensors
        return a * 2 + b * y, a


@table.snippet(grad=True)
def arguments_that_are_written(x, y):
    z = x * 1
    a, b = Doubled.apply(z, y)
    return a is z, a, b, z * 2, z.requires_grad


@table.program(args=lambda place: (t(place), t(place + 5, grad=True)))
def arguments_of_the_call_that_are_written() -> Any:
    def fn(x, y):
        a, b = Doubled.apply(x, y)
        return a is x, a + b

    return fn


def _writes_unmarked(ctx, x):
    x.mul_(2)
    return x * 1


UNMARKED = unary(_writes_unmarked, lambda ctx, grad: grad * 2, "Unmarked")


@table.snippet(grad=True, repeats=True)
def writes_that_nobody_is_told_of(x):
    z = x * 1
    return UNMARKED.apply(z), z


@table.snippet(grad=True)
def needs_where_no_gradient_is_asked_for(x):
    with torch.no_grad():
        y = ASKED.apply(x)
    return y, ASKED.apply(x.detach())


ASKED = unary(lambda ctx, x: x * 2 if ctx.needs_input_grad[0] else x * 3, lambda ctx, grad: grad, "Asked")


def _dropout(ctx, x):
    ctx.mask = torch.rand_like(x) > 0.5
    return x * ctx.mask


DROP = unary(_dropout, lambda ctx, grad: grad * ctx.mask + torch.rand_like(grad), "Drop")


@torch.library.custom_op("fineline_tests::tell", mutates_args=())
def tell(x: torch.Tensor) -> torch.Tensor:
    print("custom operator")
    return x * 2


TELL = unary(lambda ctx, x: tell(x), lambda ctx, grad: tell(grad), "Tell")


@table.snippet(grad=True)
def random_numbers(x):
    return DROP.apply(x) + torch.rand_like(x)


def _tells(ctx, grad):
    print("backward")
    return grad * 2


def _counts(ctx, grad):
    CALLS.append("backward")
    return grad * len(CALLS)


def _branches(ctx, grad):
    return grad * 2 if grad.sum() > 0 else grad * 3


def _strides(ctx, grad):
    return grad * 2 if grad.is_contiguous() else grad * 3


def _writes(ctx, grad):
    grad.mul_(2)
    return grad


def _mode(ctx, grad):
    return grad * (2 if torch.is_grad_enabled() else 3)


DOUBLE = [unary(lambda ctx, x: x * 2, fn, fn.__name__.strip("_").title()) for fn in (_tells, _counts, _branches, _strides, _writes, _mode)]


@table.program(grad=True, change={0: lambda _: CALLS.clear()}, min_graphs=0, breaks=True, repeats=True)
def backwards_that_no_graph_holds() -> Any:
    def fn(x):
        return [function.apply(x) for function in DOUBLE]

    return fn, CALLS


def _tells_forward(ctx, x):
    torch.rand(2)
    CALLS.append("forward")
    print("forward")
    return x * 2


TOLD = unary(_tells_forward, lambda ctx, grad: grad * 2, "Told")


@table.program(grad=True, change={0: lambda _: CALLS.clear()}, min_graphs=0, breaks=True, repeats=True)
def forward_with_effects() -> Any:
    def fn(x):
        y = TOLD.apply(x) + torch.rand(1)
        return y, len(CALLS)

    return fn, CALLS


@table.program(grad=True, change={2: lambda module: module.update(SCALE=5.0)}, recompiles=(2,), must_recompile=True)
def backward_reads_a_global() -> Any:
    space: dict[str, Any] = {"SCALE": 2.0}
    exec("def forward(ctx, x):\n    return x * SCALE\ndef backward(ctx, grad):\n    return grad * SCALE", space)
    scaled = unary(space["forward"], space["backward"], "Scaled")

    def fn(x):
        return scaled.apply(x) + 1

    return fn, space


class WithDefaults(Function):
    @staticmethod
    def forward(x, factor=3.0):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.count, ctx.factor = len(inputs), inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor * ctx.count, None


@table.snippet(grad=True, options={"fullgraph": True}, breaks=True, tolerance=1e-6, repeats=True)
def numbers_that_only_the_graph_knows(x):
    y, n = x[x > 0], x.detach().abs().sum().long().item()
    return Sizes.apply(x, n)[0], SAME.apply(y) * 2, WithDefaults.apply(y, float(y.shape[0])) + 1


@table.snippet(grad=True)
def setup_context_sees_defaults(x):
    return WithDefaults.apply(x), WithDefaults.apply(x, 2.0), WithDefaults.apply(x.detach())


def _fails(ctx, x):
    raise ValueError(f"not {tuple(x.shape)}")


FAILS = unary(_fails, cosine, "Fails")
FAILS_LATER = unary(saves, lambda ctx, grad: grad @ grad, "FailsLater")


@table.snippet(grad=True, min_graphs=0)
def forward_that_raises(x):
    try:
        return FAILS.apply(x)
    except ValueError as e:
        return Sine.apply(x), str(e)


@table.snippet(grad=True, min_graphs=0, repeats=True)
def backward_that_raises(x):
    return FAILS_LATER.apply(x)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)


# -- what the graphs hold, and what happens behind the call --------------------------------------------------------------
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


@pytest.mark.parametrize("function", [Sine, SineOnce, ATEN, SAME, EXP, EAGER, DROP, WithDefaults], ids=lambda f: f.__name__)
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
class Sizes(Function):
    """Sizes read in both directions, and kept in between."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.rows, ctx.factor, ctx.shape = x.shape[0] * 2, factor, x.shape
        ctx.save_for_backward(x)
        return x * x.shape[0], x.sum(0)

    @staticmethod
    def backward(ctx, a, b):
        (x,) = ctx.saved_tensors
        return a * ctx.rows * ctx.factor + b.expand(ctx.shape) * a.shape[0] + x.view(-1, 4), None


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
    assert len(captures) <= (4 if name == "one call" else 2)


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
