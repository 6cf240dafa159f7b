"""Functions under nested_compile_region: sub-graphs where a graph can hold the body, and the same result where none can."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fineline
from tests import oracle
from tests.oracle import Table, t

table = Table()
nested = fineline.nested_compile_region


@nested
def layer(x, y=1.0):
    z = x.sin() * y
    return z + x


@table.snippet(grad=True)
def inner_tensors_are_used_after_all(x):
    kept = []

    @nested
    def inner(x):
        y = x.cos()
        kept.append(y)
        kept.append(y.view(-1))
        return y * 2

    @nested
    def outer(x):
        return inner(inner(x)) + 1

    y = outer(layer(x)) + layer(x)
    return y.sum() * kept[3] + kept[0].sum(), y * 2


@table.snippet(grad=True)
def called_twice(x):
    return layer(layer(x))


@table.snippet(grad=True)
def with_keywords_and_constants(x):
    return layer(x, y=2.0) + layer(x) + layer(x, 2.0)


@table.program(grad=True)
def lifts_closures_and_parameters():
    w, linear = t(5, 4, 4, grad=True), nn.Linear(4, 4)
    nn.init.constant_(linear.weight, 0.5), nn.init.constant_(linear.bias, 0.1)

    @nested
    def body(x):
        return linear(x) @ w

    return lambda x: body(body(x * 2)) + w.sum()


@table.snippet(grad=True)
def gives_a_structure(x):
    @nested
    def body(x, k):
        return {"sum": x.sum(), "rest": [x * k, (k, x)]}, None

    out, nothing = body(x, 3)
    return out["sum"] + out["rest"][0], out["rest"][1][0], nothing, out["rest"][1][1] is x


@table.program(grad=True, recompiles={1, 2})
def writes_what_it_made():
    log = []

    @nested
    def body(x):
        y = x.cos()
        log.append(y)
        return y * 2

    return lambda x: body(body(x)) + log[-1], log


@table.program(recompiles={1, 2})
def writes_numbers():
    class Counter:
        calls = 0

    @nested
    def body(x):
        Counter.calls += 1
        return x * Counter.calls

    return lambda x: body(body(x)), Counter


@table.program()
def changes_an_operand():
    buffer = torch.zeros(3, 4)

    @nested
    def body(x):
        buffer.add_(x)
        return buffer * 2

    return lambda x: body(body(x)), buffer


@table.snippet(grad=True)
def gives_views(x):
    @nested
    def body(x):
        y = x * 2
        return y, y.t(), x.view(-1)

    a, b, c = body(x)
    return a @ b, c.sum()


@table.snippet(breaks=True, grad=True)
def breaks_inside(x):
    @nested
    def inner(x):
        y = x.sin()
        fineline.graph_break()
        return y.cos()

    @nested
    def body(x):
        return inner(x * 2) + layer(x)

    return body(x).tan()


@table.snippet(grad=True)
def raises_inside(x):
    @nested
    def body(x):
        y = x.exp()
        if y.dim() == 2:
            raise ValueError(y.shape)
        return y

    try:
        x = body(x.sin())
    except ValueError as e:
        x = x * len(e.args[0])
    return layer(x)


@table.snippet(grad=True)
def nested_twice(x):
    @nested
    def inner(x):
        return layer(x) * 2

    @nested
    def outer(x):
        return inner(inner(x)) + 1

    return outer(outer(x))


@table.snippet(grad=True)
def states_inside(x):
    @nested
    def body(x):
        with torch.no_grad():
            y = x * 2
        with torch.autocast("cpu", torch.bfloat16):
            return (x @ y.t()).float()

    return body(x).sum() + layer(x)


@table.snippet()
def leaves_a_state(x):
    @nested
    def body(x):
        torch._C._set_grad_enabled(False)
        return x * 2

    y = body(x)
    torch._C._set_grad_enabled(True)
    return y + 1


@table.snippet(grad=True)
def random_inside(x):
    @nested
    def body(x):
        return nn.functional.dropout(x, 0.5) + torch.rand(3, 4)

    return body(body(x))


@table.snippet(grad=True)
def generators_through_it(x):
    def items(x):
        for k in range(3):
            yield x * k

    @nested
    def first(it):
        return next(it) + next(it)

    it = items(x.sin())
    return first(it) + next(it)


@table.snippet(grad=True, breaks=True)
def in_a_loop_with_breaks(x):
    for _ in range(3):
        x = layer(x)
        fineline.graph_break()
    return x


@table.snippet()
def sizes_differ(x):
    return layer(x).sum() + layer(x[0]).sum() + layer(x[1]).sum()


@table.program(grad=True)
def a_method():
    class Block(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.w = nn.Parameter(t(k, 4, 4))

        @nested
        def forward(self, x):
            return torch.tanh(x @ self.w)

    model = nn.Sequential(*[Block(k) for k in range(3)])
    return model, model


@table.program(grad=True)
def pytorchs_own_mark():
    marked = torch.compiler.nested_compile_region(lambda x: x.sin() + x)
    return lambda x: marked(marked(x))


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_subgraphs(program, twin):
    oracle.check(program, twin)


# -- what is in the graph ------------------------------------------------------------------------------------------------------
def captured(fn, *args):
    seen = []

    def probe(gm, inputs):
        gm.graph.lint()
        seen.append(gm)
        return gm.forward

    compiled = fineline.compile(fn, backend=probe)
    for _ in range(2):
        assert torch.allclose(compiled(*args), fn(*args))
    return seen


def calls(gm):
    return [node.args[1] for node in gm.graph.nodes if node.target is torch.ops.higher_order.invoke_subgraph]


def test_equal_calls_share_a_subgraph():
    x = t()
    [gm] = captured(lambda x: layer(layer(layer(x))), x)
    assert calls(gm) == ["subgraph_0"] * 3 and [name for name, _ in gm.named_children()] == ["subgraph_0"]
    assert not [n for n in gm.graph.nodes if n.op == "call_method"] and len(list(gm.subgraph_0.graph.nodes)) == 5
    [gm] = captured(lambda x: layer(x) + layer(x, 2.0) + layer(x * 2) + layer(x[0]), x)
    assert calls(gm) == ["subgraph_0", "subgraph_1", "subgraph_0", "subgraph_2"]

    @nested
    def outer(x):
        return layer(layer(x)).cos()

    [gm] = captured(lambda x: outer(outer(x)), x)
    assert len(set(calls(gm))) == 1 and len(calls(getattr(gm, calls(gm)[0]))) == 2
    assert {*calls(gm)}.isdisjoint(calls(getattr(gm, calls(gm)[0])))


def test_bodies_that_no_graph_holds_are_captured_inline():
    buffer = torch.zeros(3, 4)

    @nested
    def changes(x):
        buffer.copy_(x)
        return x * 2

    @nested
    def views(x):
        return x.t()

    for fn in (changes, views):
        [gm] = captured(fn, t())
        assert not calls(gm)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    @nested
    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        return x + self.mlp(x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_transformer_of_equal_blocks(backend):
    torch.manual_seed(0)
    model, x = nn.Sequential(*[Block(8) for _ in range(4)]), torch.randn(2, 5, 8)
    compiled = fineline.compile(model, backend=backend, fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            assert torch.allclose(compiled(x), model(x), atol=1e-5)
    model(x).pow(2).sum().backward()
    expected = [p.grad.clone() for p in model.parameters()]
    for _ in range(2):
        model.zero_grad()
        compiled(x).pow(2).sum().backward()
        assert all(torch.allclose(p.grad, grad, atol=1e-3, rtol=1e-3) for p, grad in zip(model.parameters(), expected, strict=True))
    told = fineline.explain(model)(x.requires_grad_())
    assert len(told.graphs) == 1 and calls(told.graphs[0]) == ["subgraph_0"] * 4
    assert told.ran["captured"] and not told.ran["eager"] and not told.ran["skipped"]
