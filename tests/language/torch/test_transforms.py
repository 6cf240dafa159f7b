"""The transforms of torch.func in captured code: operators inside of them are in the graph, and so are entering and leaving."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._functorch import eager_transforms
from torch.func import (
    functional_call,
    functionalize,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)
from torch.overrides import TorchFunctionMode

import fineline
from fineline.report.events import LISTENERS
from tests import oracle
from tests.oracle import Table, t

table = Table()


pytestmark = pytest.mark.usefixtures("derivatives_told")


# -- vmap ------------------------------------------------------------------------------------------------------------------------
@table.snippet(grad=True)
def a_row_at_a_time(x):
    return vmap(lambda row: (row * 2).sum())(x)


@table.program(grad=True, tolerance=1e-6)
def dims_in_and_out():
    w = t(5, 4, 2, grad=True)
    return lambda x: vmap(lambda row, w: (row @ w, w), in_dims=(1, None), out_dims=(1, None))(x.t(), w), w


@table.snippet(grad=True)
def structures_in_and_out(x):
    def each(d, pair):
        return {"s": d["a"] + pair[0]}, (pair[1], d["a"].sum())

    return vmap(each, in_dims=({"a": 0}, (0, None)))({"a": x}, (x * 2, x[0]))


@table.snippet(grad=True)
def vmap_in_vmap(x):
    return vmap(vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(0, 0))(x, x[:, 0])


@table.snippet(grad=True)
def in_chunks(x):
    return vmap(lambda row: row.sin(), chunk_size=2)(x)


@table.snippet()
def other_numbers_in_each_row(x):
    return vmap(lambda row: row + torch.rand(4), randomness="different")(x)


@table.snippet()
def the_same_numbers_in_each_row(x):
    return vmap(lambda row: F.dropout(row, 0.5), randomness="same")(x)


@table.snippet(min_graphs=0, breaks=True)
def no_numbers_by_default(x):
    try:
        return vmap(lambda row: row + torch.rand(4))(x)
    except RuntimeError as e:
        return str(e)


@table.snippet(min_graphs=0, breaks=True)
def what_vmap_refuses(x):
    out = []
    for call in (lambda: vmap(lambda a: a, in_dims=3)(x), lambda: vmap(lambda a, b: a)(x, x[:2]), lambda: vmap(lambda a: 3)(x)):
        try:
            call()
        except (ValueError, RuntimeError) as e:
            out.append(str(e))
    return out, x + 1


@table.snippet(min_graphs=0, breaks=True)
def a_number_is_read_inside(x):
    try:
        return vmap(lambda row: row * row.sum().item())(x)
    except RuntimeError as e:
        return str(e)


@table.program(recompiles={1, 2})
def effects_inside():
    seen = []

    def each(row):
        seen.append(row.shape)
        return row * len(seen)

    return lambda x: vmap(each)(x), seen


@table.snippet(grad=True)
def writes_inside(x):
    def each(row):
        y = row.clone()
        y[0] = 1
        return y.add_(row)

    return vmap(each)(x * 2)


@table.snippet(min_graphs=0, breaks=True)
def raises_inside(x):
    def each(row):
        if row.dim() == 1:
            raise ValueError("flat")
        return row

    try:
        return vmap(each)(x)
    except ValueError as e:
        return str(e), x + 1


@table.snippet(grad=True, breaks=True, min_graphs=0)
def breaks_inside(x):
    def each(row):
        y = row * 2
        fineline.graph_break()
        return y + 1

    return vmap(each)(x) * 2


@table.program(breaks=True, min_graphs=0)
def a_tensor_that_outlives_its_transform():
    kept = {}

    def fn(x):
        def loss(v):
            kept["v"] = v.detach() * 2
            kept["x"] = x + 1
            return (v * v).sum()

        return grad(loss)(x)

    return fn, kept


@table.program(breaks=True, min_graphs=0)
def a_tensor_of_another_class_at_a_graph_break_inside():
    class Kept(torch.Tensor):
        pass

    def fn(x):
        y = x.as_subclass(Kept) * 2

        def each(row):
            fineline.graph_break()
            return row * 2

        return vmap(each)(y), grad(lambda v: (v * each(v)).sum())(y)

    return fn


# -- grad ------------------------------------------------------------------------------------------------------------------------
@table.snippet()
def a_gradient(x):
    return grad(lambda v: (v.sin() ** 2).sum())(x)


@table.program(grad=True, tolerance=1e-5)
def gradients_of_gradients_and_closures():
    w = t(5, 4, 4, grad=True)

    def fn(x):
        def loss(a):
            return (a @ w).sin().sum()

        return grad(lambda a: grad(loss)(a).square().sum())(x), grad(loss)(x)

    return fn, w


@table.snippet(tolerance=1e-6)
def several_arguments_and_more(x, y):
    def f(a, b, k):
        return (a * b).sum() * k, {"b": b.cos(), "k": (a * k, b)}

    grads, aux = grad(f, argnums=(0, 1), has_aux=True)(x, y, 3)
    (g, (value, more)) = grad_and_value(f, argnums=1, has_aux=True)(x, y, 2)
    return grads, aux, g, value, more


@table.snippet(grad=True)
def a_value_with_its_gradient(x):
    return grad_and_value(lambda v: v.exp().sum())(x)


@table.snippet(min_graphs=0, breaks=True)
def what_grad_refuses(x):
    out = []
    for call in (lambda: grad(lambda v: v)(x), lambda: grad(lambda v: (v.sum(), 1))(x), lambda: grad(torch.sum, argnums=2)(x)):
        try:
            call()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, x + 1


@table.snippet()
def a_gradient_without_gradients(x):
    with torch.no_grad():
        y = grad(lambda v: v.sin().sum())(x)
    return y, grad(lambda v: v.detach().sin().sum() + v.sum())(x)


# -- vjp, jvp, jacobians -----------------------------------------------------------------------------------------------------------
@table.snippet(grad=True, tolerance=1e-6)
def backwards(x):
    out, back = vjp(lambda a: (a.sin(), a.sum()), x)
    return out, back((torch.ones_like(x), out[1]))


@table.snippet(grad=True, tolerance=1e-6)
def backwards_with_more(x):
    out, back, aux = vjp(lambda a: (a.sin(), a * 2), x, has_aux=True)
    return out, back(x)[0], back(out)[0], aux


@table.snippet()
def forwards(x):
    out, tangent = jvp(lambda a: a.sin() * a, (x,), (torch.ones_like(x),))
    return out, tangent, jvp(lambda a, b: (a * b, b), (x, x + 1), (x, x * 2), has_aux=True)


@table.program(tolerance=1e-5)
def jacobians():
    w = t(5, 4, 3)

    def fn(x):
        row = x[0]
        return jacrev(lambda a: (a @ w).sin())(row), jacfwd(lambda a: (a @ w).sin())(row), jacrev(lambda a: a @ w, chunk_size=2)(row)

    return fn


@table.snippet(tolerance=1e-5)
def jacobians_with_more(x):
    return jacrev(lambda a: (a.sin(), a.cos()), has_aux=True)(x[0]), jacfwd(lambda a, b: a * b, argnums=1)(x[0], x[1])


@table.snippet(tolerance=1e-5)
def hessians(x):
    return hessian(lambda a: (a.sin() * a).sum())(x[0]), hessian(lambda a, b: (a * b).prod(), argnums=(0, 1))(x[0], x[1])


@table.snippet(grad=True, tolerance=1e-5)
def a_jacobian_is_differentiated(x):
    return jacrev(lambda a: a.sin().sum(0))(x).square().sum()


@table.snippet(min_graphs=0, breaks=True)
def linear_parts(x):
    out, forward = linearize(lambda a: a.sin() * 2, x)
    return out, forward(torch.ones_like(x)), forward(x)


@table.snippet(min_graphs=0, breaks=True)
def without_writes(x):
    def f(a):
        y = a.clone()
        y.add_(1)
        return y.view(-1).mul_(2)

    return functionalize(f)(x), functionalize(f, remove="mutations_and_views")(x) + 1


# -- modules ---------------------------------------------------------------------------------------------------------------------
def net():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    for k, p in enumerate(model.parameters()):
        p.data = t(k, *p.shape) / 2
    return model


@table.program(tolerance=1e-6)
def a_functional_call():
    linear = nn.Linear(4, 4)

    def fn(x):
        y = functional_call(linear, {"weight": linear.weight * 2, "bias": x[0]}, (x,))
        return y, linear(x), functional_call(linear, (dict(linear.named_parameters()),), x)

    return fn, linear


@table.program(tolerance=1e-5)
def gradients_for_each_sample():
    model = net()

    def fn(x, y):
        def loss(params, a, b):
            return (functional_call(model, params, (a.unsqueeze(0),)) - b).square().sum()

        params = {k: v.detach() for k, v in model.named_parameters()}
        return vmap(grad(loss), in_dims=(None, 0, 0))(params, x, y[:, :1])

    return fn, model


def classes(*rows):
    return t(*rows).abs().mul(10).long() % 3


@table.program(tolerance=1e-5, args=lambda place: (t(place), classes(place, 3)))
def gradients_of_losses_with_a_target_for_each_sample():
    linear = nn.Linear(4, 3)
    linear.weight.data, linear.bias.data = t(2, 3, 4), t(3, 3)
    params = {k: v.detach() for k, v in linear.named_parameters()}

    def fn(x, y):
        def loss_of_one(params, a, b):
            return F.cross_entropy(functional_call(linear, params, (a,)), b)

        def loss_of_a_row(params, a, b):
            return F.cross_entropy(functional_call(linear, params, (a[None],)), b[None]), b

        def picked(a, b):
            return a.log_softmax(0)[b] + a.gather(0, b[None])[0] + F.embedding(b, a[:, None]).sum()

        each = vmap(grad(loss_of_one), in_dims=(None, 0, 0))(params, x, y)
        with_more = vmap(grad(loss_of_a_row, has_aux=True), in_dims=(None, 0, 0))(params, x, y)
        return each, with_more, vmap(grad(picked))(x, y), vmap(jacrev(picked))(x, y)

    return fn, linear


@table.program(tolerance=1e-6, args=lambda place: (t(place, 4), classes(place, 3)[0]))
def gradients_of_a_loss_with_one_target():
    w = t(5, 3, 4)
    return lambda x, y: (grad(lambda w: F.cross_entropy(w @ x, y))(w), jvp(lambda x: F.nll_loss(w @ x, y), (x,), (x,)), grad_and_value(grad_of_one)(w, x, y)), w


def grad_of_one(w, x, y):
    return grad(lambda w: F.cross_entropy(w @ x, y))(w).square().sum() * y


@table.program(tolerance=1e-5)
def an_ensemble():
    models = [net() for _ in range(3)]
    models[1][0].weight.data.mul_(2)
    params, buffers = stack_module_state(models)

    def fn(x):
        def one(params, buffers, x):
            return functional_call(models[0], (params, buffers), (x,))

        return vmap(one, in_dims=(0, 0, None))(params, buffers, x)

    return fn, (params, buffers)


@table.program(tolerance=1e-5)
def an_ensemble_is_stacked_inside():
    models = [nn.Linear(4, 2), nn.Linear(4, 2)]

    def fn(x):
        params, buffers = stack_module_state(models)
        return vmap(lambda p, x: functional_call(models[0], p, (x,)), in_dims=(0, None), randomness="same")(params, x).sum()

    return fn, models


@table.program(tolerance=1e-5, recompiles={1, 2})
def a_step_of_training():
    model = net()
    params = {k: v.detach().clone() for k, v in model.named_parameters()}

    def fn(x):
        def loss(p):
            return functional_call(model, p, (x,)).square().mean()

        grads, value = grad_and_value(loss)(params)
        for name, g in grads.items():
            params[name] = params[name] - 0.1 * g
        return value

    return fn, params


@table.snippet(tolerance=1e-5)
def transforms_of_transforms(x):
    def f(a):
        return (a.sin() * a).sum()

    each = vmap(grad(f))(x)
    across = jvp(vmap(grad(f)), (x,), (x,))[1]
    return each, across, vmap(jacrev(lambda a: a.exp()))(x), grad(lambda a: vmap(f)(a).sum())(x)


class Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


@table.snippet(min_graphs=0, breaks=True)
def functions_of_the_users(x):
    return grad(lambda v: Cube.apply(v).sum())(x), vmap(Cube.apply)(x)


@table.snippet(tolerance=1e-5)
def transforms_in_branches(x):
    def yes(x):
        return torch.func.grad(lambda v: v.sin().sum())(x) + vmap(lambda row: row * row.sum())(x)

    return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))


@table.snippet()
def forward_mode_in_branches(x):
    def yes(x):
        return jvp(torch.sin, (x,), (x,))[1]

    return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,)), jvp(torch.sin, (x,), (x,))


# -- sizes that depend on data ---------------------------------------------------------------------------------------------------
# The transform is called as a whole, between two graphs.
SIGNS = [torch.tensor(signs) for signs in ([1.0, -2.0, 3.0], [-1.0, -2.0, 3.0], [1.0, 2.0, 3.0])]


def selected(y):
    return (y[y > 0] ** 2).sum()


def found(y):
    return y[torch.nonzero(y > 0).squeeze(-1)].sin()


def distinct(y):
    return torch.unique(y.round()).numel() * y.sum()


def differentiated(x):
    return grad(selected)(x * 2) + 1


def pulled_back(x):
    out, pull = vjp(found, x * 2)
    return out + 1, pull(torch.ones_like(out))[0] * 2


def pushed_forward(x):
    return jvp(lambda y: torch.masked_select(y, y > 0) * 2, (x * 2,), (torch.ones_like(x),))


def within_each_other(x):
    return grad(lambda y: grad(distinct)(y * 2).sum() * selected(y))(x * 2) + 1


DEPENDING = (differentiated, pulled_back, pushed_forward, within_each_other)
for fn in DEPENDING:
    table.snippet(calls=4, args=lambda place: (SIGNS[place % 3],), breaks=True, min_graphs=0, recompiles=range(4), tolerance=1e-6)(fn)


@pytest.mark.parametrize("fn", DEPENDING)
def test_the_graph_breaks_outside_of_the_transform(fn) -> None:
    """At the second call, which is captured as later ones run; operators around the transform are in graphs."""
    compiled = fineline.compile(fn, backend="eager")
    compiled(SIGNS[0])
    before = len(fineline.report(compiled).breaks)
    compiled(SIGNS[1])
    report = fineline.report(compiled)
    places = {(event.line, event.id) for event in report.breaks[before:]}
    line = fn.__code__.co_firstlineno + 1
    pulls = {place for place in places if place[1] == "FL503"}  # in the function that vjp returns, whose tensors are from before the graph
    assert (line, "FL420") in places and all([at > line for at, id in places - pulls - {(line, "FL420")}]), places
    assert report.operators >= 2


@table.program()
def made_outside():
    f = vmap(grad(lambda row: row.sin().sum()))
    return lambda x: f(x) + 1


# -- gradients with respect to tensors from before the graph -------------------------------------------------------------------------
# AOTAutograd gives a graph tensors without their history: such a gradient would be zero.
def pulled_from_before():
    pull = vjp(lambda y: (y * y).sin(), t(5))[1]
    return lambda x: pull(x * 2)[0] + x


def pulled_to_weights_from_before():
    w = t(5, grad=True)
    pull = vjp(lambda y: (y * w).sin(), t(6))[1]
    return lambda x: pull(x * 2)[0] + x, w


def pulled_across_a_break():
    def fn(x):
        out, pull = vjp(lambda y: (y * y).sin(), x * 2)
        fineline.graph_break()
        return pull(out + 1)[0] * 2

    return fn


def pulled_row_by_row():
    pull = vjp(lambda y: (y * y).sin(), t(5, 4))[1]
    return lambda x: vmap(lambda row: pull(row)[0])(x * 2) + 1


def pulled_within_a_gradient():
    pull = vjp(lambda y: (y * y).sin(), t(5))[1]
    return lambda x: grad(lambda y: (pull(y)[0] * y).sum())(x * 2) + 1


def pulled_under_a_mode():
    pull = vjp(lambda y: (y * y).sin(), t(5))[1]

    def fn(x):
        with Passing():
            return pull(x * 2)[0] + x

    return fn


def asked_by_name():
    w = t(5, grad=True)
    seen = (w * 2).sin()
    return lambda x: eager_transforms._autograd_grad((seen,), inputs=(w,), grad_outputs=(x * 2,), retain_graph=True)[0] + x, w


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


BEFORE = (
    pulled_from_before, pulled_to_weights_from_before, pulled_across_a_break, pulled_row_by_row, pulled_within_a_gradient,
    pulled_under_a_mode, asked_by_name,
)  # fmt: skip
for make in BEFORE:
    table.program(breaks=True, recompiles={1}, tolerance=1e-6)(make)


@pytest.mark.parametrize("make", BEFORE)
def test_the_graph_breaks_at_a_gradient_of_what_is_from_before(make) -> None:
    made = make()
    fn = made[0] if isinstance(made, tuple) else made
    compiled = fineline.compile(fn, backend="aot_eager")
    for k in range(3):
        torch.testing.assert_close(compiled(t(k)), fn(t(k)))
    assert "with respect to a tensor from before the graph" in str([event.reason for event in fineline.report(compiled).breaks if event.id == "FL503"])


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    oracle.check(program, twin)


# -- what is in the graph, and backends ----------------------------------------------------------------------------------------------
def per_sample(x):
    return vmap(grad(lambda row: (row.sin() * row).sum()))(x)


@pytest.mark.parametrize("options", [{}, {"options": {"first_call": "compiled"}}, {"dynamic": True}], ids=["live", "fake", "dynamic"])
def test_one_graph_with_the_levels_in_it(options):
    seen = []

    def probe(gm, inputs):
        seen.append(gm)
        return gm.forward

    compiled = fineline.compile(per_sample, backend=probe, fullgraph=True, **options)
    assert torch.equal(compiled(t()), per_sample(t())) and torch.equal(compiled(t(1)), per_sample(t(1)))
    (gm,) = seen
    names = [getattr(node.target, "__name__", str(node.target)) for node in gm.graph.nodes if node.op.startswith("call_")]
    assert names.count("_vmap_increment_nesting") == names.count("_vmap_decrement_nesting") == 1
    assert names.count("_grad_increment_nesting") == names.count("_grad_decrement_nesting") == 1
    assert "sin" in names


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_backends_take_transforms(backend):
    w = t(3, 4, 4, grad=True)

    def fn(x):
        each = vmap(grad(lambda row: ((row @ w).sin() * row).sum()))(x)
        tangent = jvp(lambda v: v.cos() @ w, (x,), (each,))[1]
        return each + tangent + jacrev(lambda v: v.exp())(x[0])[:3]

    compiled = fineline.compile(fn, backend=backend, fullgraph=True)
    for k in range(2):
        a, b = t(k, grad=True), t(k, grad=True)
        out, expected = compiled(a), fn(b)
        torch.testing.assert_close(out, expected)
        for got, wanted in zip(torch.autograd.grad(out.sum(), (a, w)), torch.autograd.grad(expected.sum(), (b, w)), strict=True):
            torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_twice_differentiated(backend):
    def fn(x):
        return jacrev(lambda v: (v**3).sum())(x).sin()

    def twice(call):
        x = t(grad=True)
        (g,) = torch.autograd.grad(call(x).sum(), x, create_graph=backend == "eager")
        return torch.autograd.grad(g.sum(), x)[0] if backend == "eager" else g

    torch.testing.assert_close(twice(fineline.compile(fn, backend=backend)), twice(fn))


def test_views_of_sizes_that_vary_inside_of_a_transform() -> None:
    def fn(x, w):
        def loss(w):
            return (w * x.long().max().item()).sum() + x.sum()

        return torch.func.grad(loss)(w), x * 2

    heard: list[str] = []
    before, LISTENERS.all = LISTENERS.all, (*LISTENERS.all, lambda event: heard.append(event.kind))
    compiled = fineline.compile(fn, backend="eager")
    try:
        for rows in range(5, 9):
            x, w = t(rows, rows, 4)[1:], t(0)
            assert all(map(torch.equal, compiled(x, w), fn(x, w)))
    finally:
        LISTENERS.all = before
    assert "recompile" in heard and "restart" not in heard


class Doubling(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.Tensor.add:
            plain = [a.as_subclass(torch.Tensor) for a in args]
            return torch.add(plain[0], plain[1] * 2).as_subclass(cls)
        return super().__torch_function__(func, types, args, kwargs or {})


# Fakes have no tangents of this class: its operators raise, in a function of PyTorch's that has a guard of C++ among its variables.
@table.program(calls=5, recompiles=range(5), breaks=True, repeats=True, change={2: lambda held: held.append(t(5).as_subclass(Doubling))})
def forward_gradients_of_a_subclass():
    held = [t(5)]

    def fn(x):
        return jvp(lambda v: v + v * v, (held[-1] * x.sum(),), (held[-1] - 1,))[1]

    return fn, held


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_ensembles_and_gradients_for_each_sample(backend):
    programs = {p.name: p for p in table.programs}
    for name in ("gradients_for_each_sample", "an_ensemble"):
        fn = programs[name].make()[0]
        args = (t(), t(1))[: fn.__code__.co_argcount]
        torch.testing.assert_close(fineline.compile(fn, backend=backend, fullgraph=True)(*args), fn(*args))


def test_what_traces_by_itself_is_told():
    with pytest.raises(fineline.errors.Unsupported, match="FL521"):
        fineline.compile(lambda x: linearize(torch.sin, x)[0], backend="eager", fullgraph=True)(t())
