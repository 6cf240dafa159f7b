"""while_loop, scan, map and associative_scan: their bodies are sub-graphs, and what no graph can hold runs as in eager code."""

from __future__ import annotations

import warnings

import pytest
import torch
from functorch.experimental import control_flow
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as hop_map

import fineline
from tests.language.torch.higher_order import BACKENDS, MODES, STRICT, captured, check_afresh, targets
from tests.oracle import Table, t

table = Table()


@pytest.fixture(scope="module", autouse=True)
def told_before():
    """What eager operators say once in a process has been said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scan(lambda c, x: (c + x, c * x), torch.ones(2, requires_grad=True), torch.ones(3, 2))[0].sum().backward()


# -- while_loop ----------------------------------------------------------------------------------------------------------------
@table.snippet()
def a_loop(x):
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=torch.int64), x))


@table.snippet(**STRICT)
def a_loop_carries_integers(x):
    i, y, j = while_loop(lambda i, x, j: i < 3, lambda i, x, j: (i + 1, x * 2 + i, 5), (0, x, x.shape[0]))
    return i, y + i, j, torch.ones(i)


@table.snippet(**STRICT)
def a_loop_of_integers_alone(x):
    limit = x.shape[0] * 2
    (i,) = while_loop(lambda i: i < limit, lambda i: (i + limit // 3,), (x.shape[0],))
    return i, x + i


@table.snippet(breaks=True)
def a_loop_carries_integers_where_nobody_asks(x):
    i, y = while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (0, x))
    return i, y + i


@table.program()
def a_loop_with_closures():
    linear = nn.Linear(4, 4).requires_grad_(False)

    def fn(x):
        limit = x.abs().sum() * 3
        count, y = while_loop(lambda i, x: x.abs().sum() < limit, lambda i, x: (i + 1, linear(x) + x * 2), (torch.tensor(0), x + 1))
        return count, y, limit

    return fn, linear


@table.snippet()
def a_loop_over_structures(x):
    def go(state, rest):
        return {"i": state["i"] + 1, "x": state["x"] + rest[0]}, (rest[0] * 2,)

    return while_loop(lambda s, r: s["i"] < 4, go, ({"i": torch.tensor(0), "x": x}, (x.cos(),)))


@table.snippet()
def a_loop_that_never_runs(x):
    return while_loop(lambda x: x.sum() > 1e9, lambda x: (x + 1,), (x,))


@table.snippet(min_graphs=0, breaks=True)
def a_loop_with_a_number(x):
    return while_loop(lambda i, x: i < x.shape[0], lambda i, x: (i + 1, x + i), (0, x))


@table.snippet(min_graphs=0, breaks=True)
def a_loop_that_changes_sizes(x):
    try:
        return while_loop(lambda x: x.sum() > 0, lambda x: (x[:-1],), (x,))
    except Exception as e:
        return type(e).__name__


# -- scan, map, associative_scan -----------------------------------------------------------------------------------------------
@table.snippet()
def sums_so_far(x):
    return scan(lambda c, x: (c + x, c * x), torch.zeros(4), x)


@table.snippet(grad=True, tolerance=1e-5)
def a_scan_with_gradients(x):
    last, all_ = scan(lambda c, x: (c + x.sin(), c * x), x[0].detach() * 2, x)
    return last.sum() + all_.sum()


@table.snippet()
def a_scan_backwards_over_columns(x):
    return scan(lambda c, x: (c * 2 + x, (c + 1).clone()), torch.ones(3), x, dim=1, reverse=True)


@table.program()
def a_scan_over_structures():
    w = t(3, 4)

    def step(carry, item):
        return {"h": (carry["h"] + item[0]) * w}, [carry["h"] - item[1]["y"]]

    return lambda x: scan(step, {"h": torch.zeros(4)}, (x, {"y": x * 2}))


@table.program()
def a_recurrent_net():
    cell = nn.GRUCell(4, 4).requires_grad_(False)

    def step(h, x):
        h = cell(x, h)
        return h, h.clone()

    return lambda x: scan(step, torch.zeros(2, 4), torch.stack([x[:2], x[1:]]))


@table.snippet()
def a_map(x):
    return control_flow.map(lambda row, b: row.sin() + b, x, torch.ones(4))


@table.snippet(grad=True, tolerance=1e-5)
def a_map_with_gradients(x):
    total = x.sum()
    return hop_map(lambda row: row.sin() * total, x * 2)


@table.program()
def a_map_over_structures():
    w = t(2, 4)

    def each(d, k):
        return d["a"] * w + k, {"s": d["b"].sum()}

    return lambda x: hop_map(each, {"a": x, "b": x * 2}, x[0] + 1)


@table.snippet(min_graphs=0, breaks=True)
def a_map_of_things_that_share_memory(x):
    try:
        return hop_map(lambda row, all_: row + all_.sum(), x, x[0])
    except Exception as e:
        return type(e).__name__


@table.snippet(min_graphs=0, breaks=True)
def a_map_of_nothing(x):
    try:
        return hop_map(lambda row: row, x[:0])
    except RuntimeError as e:
        return str(e)


@table.snippet(grad=True, tolerance=1e-5)
def an_associative_scan(x):
    return associative_scan(lambda a, b: a * b, x, 0, combine_mode="generic")


@table.snippet(tolerance=1e-5)
def an_associative_scan_over_structures(x):
    def combine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    return associative_scan(combine, (x, x.cos()), 1, reverse=True, combine_mode="generic")


# -- inside of vmap ------------------------------------------------------------------------------------------------------------
@table.snippet()
def a_scan_for_each_row(x):
    w = x.mean()
    return torch.vmap(lambda r: scan(lambda c, v: (c + v * w, c * v), r[0], r))(x)


@table.snippet(min_graphs=0, breaks=True)
def a_loop_for_each_row(x):
    try:
        return torch.vmap(lambda r: while_loop(lambda r: r.sum() < 100, lambda r: (r.abs() * 2 + 1,), (r,))[0])(x)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    check_afresh(program, twin)


# -- what is in the graph ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", MODES)
def test_every_operator_is_one_node(mode):
    def fn(x):
        n, y = while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x * x), (torch.tensor(0), x))
        c, z = scan(lambda c, row: (c + row, c * row), y[0].clone(), y)
        return hop_map(lambda row: row + c, z).sum() + n

    (gm,) = captured(fn, t(), **MODES[mode])
    for op in ("while_loop", "scan", "map_impl"):
        assert targets(gm).count(op) == 1
    assert {name for name, _ in gm.named_children()} == {"cond_fn_0", "body_fn_1", "combine_fn_2", "body_3"}


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_take_loops(backend):
    @torch.no_grad()
    def fn(x, w):
        n, y = while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, x @ w), (torch.tensor(0), x))
        return scan(lambda c, row: (c + row, c * row), y[0].clone(), y)[1] + hop_map(lambda row: row + w[0], x) + n

    x, w = t(), t(1, 4, 4)
    torch.testing.assert_close(fineline.compile(fn, backend=backend)(x, w), fn(x, w))
