"""torch.cond: its branches are sub-graphs, and what no graph can hold runs as in eager code."""

from __future__ import annotations

import pytest
import torch
from functorch.experimental import control_flow
from torch import nn
from torch._higher_order_ops import scan

import fineline
from tests.language.torch.higher_order import BACKENDS, MODES, STRICT, captured, check_afresh, same_gradients, targets
from tests.oracle import Table, t

table = Table()


def signed(place):
    """Another sign at each call."""
    return (t(place, grad=True) + (9 if place % 2 else -9),)


def alternating(**marks):
    return table.snippet(args=lambda place: (t(place) + (9 if place % 2 else -9),), **marks)


@alternating()
def a_branch(x):
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,)) + 1


@table.snippet(grad=True, tolerance=1e-6)
def a_branch_with_gradients(x):
    y = torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos() * 2, (x,))
    return y * x


@table.program(args=signed, tolerance=1e-6)
def closures_become_operands():
    w, linear = t(5, 4, 4, grad=True), nn.Linear(4, 4)

    def fn(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda: linear(y) @ w, lambda: linear(x) - w[:3], ())

    return fn, (w, linear)


@alternating()
def branches_give_structures(x):
    def yes(x, y):
        return {"a": x + y, "b": [x.sum(), (x.cos(), 3)]}

    def no(x, y):
        return {"a": x - y, "b": [y.sum(), (x.sin(), 3)]}

    out = torch.cond(x.mean() > 0, yes, no, (x, x * 2))
    return out["a"], out["b"][0], out["b"][1], type(out)


@alternating()
def operands_are_structures(x):
    return torch.cond(x.sum() > 0, lambda d, pair: d["x"] + pair[0][0], lambda d, pair: d["x"] * pair[1], ({"x": x}, ([x + 1], x * 2)))


@alternating()
def a_branch_in_a_branch(x):
    def yes(x):
        return torch.cond(x[0].sum() > 8, lambda x: x.sin() + y, lambda x: x.cos() - y, (x,))

    y = x.exp()
    return torch.cond(x.sum() > 0, yes, lambda x: x + y, (x,))


@table.snippet()
def the_condition_is_known(x):
    a = torch.cond(x.shape[0] > 2, lambda x: x.sin(), lambda x: x.cos()[0], (x,))
    return a, torch.cond(False, lambda x: x.sin(), lambda x: x.cos()[0], (x,)), torch.cond(1, torch.sin, torch.cos, (x,))


@table.program(recompiles={1, 2})
def a_known_branch_may_have_effects():
    seen = []

    def yes(x):
        seen.append(len(seen))
        return x * 2

    return lambda x: torch.cond(True, yes, yes, (x,)) + len(seen), seen


@alternating()
def the_other_spellings(x):
    a = control_flow.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), [x])
    return a + torch.ops.higher_order.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@alternating()
def in_states_of_pytorch(x):
    with torch.no_grad():
        a = torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
    with torch.autocast("cpu", torch.bfloat16):
        b = torch.cond(x.sum() > 0, lambda x: x @ x.t(), lambda x: (x @ x.t()) * 2, (x,))
    return a, b


@alternating()
def states_in_branches(x):
    def yes(x):
        with torch.no_grad():
            y = x * 2
        return y + x

    return torch.cond(x.sum() > 0, yes, lambda x: x.clone(), (x,))


@alternating()
def many_branches(x):
    for k in range(3):
        x = torch.cond(x.sum() > k, lambda x: x - k, lambda x: x + k, (x,))
    return x


@table.program(args=lambda place: (t(place) + (9 if place % 2 else -9),))
def a_branch_of_a_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.register_buffer("shift", t(7, 4))

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.a, self.other, (x,)) + self.shift

        def other(self, x):
            return self.b(x) * self.shift

    return Model().requires_grad_(False)


@alternating(min_graphs=0, breaks=True)
def a_branch_gives_its_operand(x):
    try:
        return torch.cond(x.sum() > 0, lambda x: x, lambda x: x + 1, (x,)) * 2
    except Exception as e:
        return type(e).__name__


@alternating(min_graphs=0, breaks=True)
def a_branch_breaks(x):
    def yes(x):
        print("yes")
        return x * 2

    try:
        return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))
    except Exception as e:
        return type(e).__name__


@table.program(min_graphs=0, breaks=True)
def a_branch_changes_a_list():
    seen = []

    def fn(x):
        made = [1]

        def yes(x):
            made.append(2)
            return x * 2

        try:
            y = torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))
        except Exception as e:
            y = type(e).__name__
        seen.append(made)
        return y

    return fn, seen


@alternating(min_graphs=0, breaks=True)
def branches_disagree(x):
    def attempt(yes, no):
        try:
            return torch.cond(x.sum() > 0, yes, no, (x,))
        except Exception as e:
            return type(e).__name__

    return attempt(lambda x: x, lambda x: (x, x)), attempt(lambda x: x.int(), lambda x: x * 2), attempt(lambda x: 1, lambda x: x.add_(1))


@table.snippet(min_graphs=0, breaks=True)
def a_branch_raises(x):
    def yes(x):
        raise ValueError(x.shape)

    try:
        return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))
    except Exception as e:
        return type(e).__name__


@table.snippet(min_graphs=0, breaks=True)
def not_for_cond(x):
    out = []
    for args in ((x, torch.sin, torch.cos, (x,)), (x.sum() > 0, 1, 2, (x,)), (x.sum() > 0, torch.sin, torch.cos, x)):
        try:
            torch.cond(*args)
        except Exception as e:
            out.append(type(e).__name__)
    return out, x + 1


@table.snippet(**STRICT)
def branches_give_different_integers(x):
    y, n, same = torch.cond(x.sum() > 0, lambda x: (x + 1, 3, 7), lambda x: (x - 1, 5, 7), (x,))
    return y * n, n + 1, same, torch.ones(n).sum() + y


@table.snippet(**STRICT)
def branches_give_different_sizes(x):
    y = torch.cond(x.sum() > 0, lambda x: x[:2] * 1, lambda x: x + 1, (x,))
    return y * 2, y.shape[0] + 1, y.sum(0)


@table.snippet(**STRICT)
def a_number_is_read_in_a_branch(x):
    return torch.cond(x.sum() > 0, lambda x: x * x.sum().item(), lambda x: x + x.shape[0], (x,))


@table.snippet(**STRICT)
def branches_use_numbers_from_around(x):
    n, y = x.sum().long().item(), x[x > 0]
    z = torch.cond(x.sum() > 0, lambda y: y * n, lambda y: y + y.shape[0], (y,))
    return torch.cond(x.sum() > 0, lambda x: x * n, lambda x: x + n, (x,)), z


@alternating(breaks=True, recompiles={1})
def branches_give_different_integers_where_nobody_asks(x):
    y, n = torch.cond(x.sum() > 0, lambda x: (x + 1, 3), lambda x: (x - 1, 5), (x,))
    return y * n, n


# -- inside of vmap ------------------------------------------------------------------------------------------------------------
@table.snippet()
def a_branch_for_each_row(x):
    shift = x.sum(0)
    rows = torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r.sin() + shift, lambda r: r.cos() - r, (r,)))(x)
    return rows, torch.vmap(lambda r: torch.cond(shift.sum() > 0, lambda r: r * 2, lambda r: r * 3, (r,)) + r)(x)


@table.snippet()
def a_branch_for_each_row_of_rows(x):
    return torch.vmap(torch.vmap(lambda v: torch.cond(v > 0, lambda v: v.sin(), lambda v: v * 2, (v,))))(x)


@table.snippet()
def a_branch_closes_over_its_row(x):
    def of(r):
        twice = r * 2
        return torch.cond(r.sum() > 0, lambda: twice + 1, lambda: twice * r, ())

    return torch.vmap(of, in_dims=1)(x)


@table.snippet(grad=True, tolerance=1e-6)
def a_branch_for_each_row_with_gradients(x):
    return torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r.sin(), lambda r: r.cos(), (r,)))(x) * x


@table.snippet(min_graphs=0, breaks=True)
def branches_for_each_row_give_more(x):
    try:
        return torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: (r.sin(), r * 1), lambda r: (r.cos(), r + 1), (r,)))(x)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    check_afresh(program, twin)


# -- what is in the graph ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_branches_are_subgraphs(mode):
    w = t(1, 4)

    def fn(x):
        return torch.cond(x.sum() > 0, lambda x: x.sin() + w, lambda x: x.cos() * 2, (x,)) + 1

    (gm,) = captured(fn, t(), **MODES[mode])
    (node,) = [node for node in gm.graph.nodes if node.target is torch.ops.higher_order.cond]
    yes, no = [getattr(gm, str(branch.target)) for branch in node.args[1:3]]
    assert targets(yes) == ["sin", "add"] and targets(no) == ["cos", "mul"]
    # Both take all that either uses: x, and w from around them.
    assert [len(b.graph.find_nodes(op="placeholder")) for b in (yes, no)] == [2, 2] == [len(node.args[3])] * 2
    assert targets(gm) == ["sum", "gt", "cond", "getitem", "add"]


def test_branches_in_branches():
    def yes(x):
        return torch.cond(x[0, 0] > 0, lambda x: x * y, lambda x: x + 1, (x,))

    def fn(x):
        return torch.cond(x.sum() > 0, yes, lambda x: x - y, (x,))

    y = t(4)
    (gm,) = captured(fn, t())
    inner = gm.true_fn_0.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    assert len(inner) == 1 and targets(getattr(gm.true_fn_0, str(inner[0].args[1].target))) == ["mul"]


def test_sizes_become_operands():
    def fn(x):
        n = x.shape[0]
        return torch.cond(x.sum() > 0, lambda x: x * n, lambda x: x.sum(0).expand(n, 4) + 0, (x,))

    compiled = fineline.compile(fn, backend="aot_eager", dynamic=True)
    for k in (3, 5, 9):
        assert torch.equal(compiled(t(0, k, 4)), fn(t(0, k, 4)))
    (gm,) = captured(fn, t(), dynamic=True)
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    assert len(node.args[3]) == 2


def test_the_reason_names_the_line():
    def yes(x):
        print(end="")
        return x

    def fn(x):
        return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))

    with pytest.raises(fineline.errors.Unsupported) as e:
        fineline.compile(fn, backend="eager", fullgraph=True)(t())
    text = str(e.value)
    assert "FL520" in text and "true_fn can't be a graph" in text and f"{__file__}:{yes.__code__.co_firstlineno + 1}" in text
    assert f"{__file__}:{fn.__code__.co_firstlineno + 1}" in text


def test_bodies_leave_no_state_behind():
    def yes(x):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            print(end="")
        return x

    def fn(x):
        try:
            return torch.cond(x.sum() > 0, yes, lambda x: x + 1, (x,))
        except Exception:
            return torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")

    assert fineline.compile(fn, backend="eager")(t()) == (True, False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_take_branches(backend):
    w = t(5, 4, 4, grad=True)

    def fn(x):
        y = torch.cond(x.sum() > 0, lambda x: x.sin() @ w, lambda x: x @ w.cos(), (x,))
        return torch.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: y.exp(), (y,))

    same_gradients(fn, backend, t(), parameters=[w])
    same_gradients(fn, backend, t() - 9, parameters=[w], dynamic=True)


@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"dynamic": True, "fullgraph": True}], ids=str)
def test_branches_give_sizes_that_vary(how):
    """In eager code PyTorch takes a branch's integers as constants, and refuses the second size."""
    captured = []

    def fn(x):
        y, n = torch.cond(x.sum() > 0, lambda x: (x + 1, x.shape[0] * 2), lambda x: (x - 1, 2 * len(x)), (x,))
        return y * n, n

    def backend(gm, inputs):
        captured.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=backend, **how)
    for n in (4, 6, 8, 3):
        for sign in (1, -1):
            y, twice = compiled(torch.full((n, 2), 3.0) * sign)
            assert type(twice) is int and twice == 2 * n and torch.equal(y, torch.full((n, 2), 4.0) * sign * twice)
    assert len(captured) == (1 if how else 2)


def test_numbers_that_vary():
    @fineline.nested_compile_region
    def body(x, k):
        return x * k + x.shape[0]

    def fn(x, k):
        return body(body(x, k), k + 1) + torch.cond(x.sum() > 0, lambda x: x * k, lambda x: x + x.shape[0], (x,))

    seen = []

    def probe(gm, inputs):
        seen.append(gm)
        return gm.forward

    for options in ({}, {"dynamic": True}):
        seen.clear()
        compiled = fineline.compile(fn, backend=probe, **options)
        for k in (3, 5, 7):
            assert torch.equal(compiled(t(k, k, 4), k), fn(t(k, k, 4), k))
        assert len(seen) <= 3


SYMBOLIC = [{"dynamic": True}, {"dynamic": None}, {"dynamic": True, "options": {"first_call": "compiled"}}]


# In eager code PyTorch compiles the operator by itself, which these fail.
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("options", SYMBOLIC, ids=str)
def test_branches_give_different_integers_that_depend_on_sizes(options: dict, backend: str) -> None:
    def fn(x):
        y, n, m, same = torch.cond(
            x.sum() > 0, lambda x: (x + 1, x.shape[0], 3, x.shape[0]), lambda x: (x - 1, x.shape[1] * 2, x.shape[0], x.shape[0]), (x,)
        )
        return y * n, n + m, same, torch.ones(n).sum() + y

    def eager(x):
        rows, columns = x.shape
        y, n, m = (x + 1, rows, 3) if x.sum() > 0 else (x - 1, columns * 2, rows)
        return y * n, n + m, rows, torch.ones(n).sum() + y

    compiled = fineline.compile(fn, backend=backend, fullgraph=True, **options)
    for place, size in enumerate([(3, 4), (5, 6), (2, 9), (7, 3)]):
        x = torch.randn(*size).abs() * (-1) ** (place // 2)
        for got, want in zip(compiled(x), eager(x), strict=True):
            assert type(got) is type(want) and (torch.equal(got, want) if type(want) is torch.Tensor else got == want)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("options", SYMBOLIC, ids=str)
def test_a_branch_or_scan_for_each_row_is_in_the_graph_with_symbolic_sizes(options: dict, backend: str) -> None:
    def fn(x):
        rows = torch.vmap(lambda r: torch.cond(r.sum() > 0, lambda r: r * x.shape[0], lambda r: r - x.shape[1], (r,)))(x)
        return rows, torch.vmap(lambda r: scan(lambda c, v: (c + v, c * v), r[0], r)[1])(x)

    def eager(x):
        rows = [r * x.shape[0] if r.sum() > 0 else r - x.shape[1] for r in x]
        before = x.cumsum(1) - x + x[:, :1]
        return torch.stack(rows), before * x

    compiled = fineline.compile(fn, backend=backend, fullgraph=True, **options)
    for size in ((3, 4), (5, 6), (2, 9), (7, 3)):
        x = torch.randn(*size)
        assert all(map(torch.allclose, compiled(x), eager(x)))
