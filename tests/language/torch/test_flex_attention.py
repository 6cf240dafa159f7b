"""flex_attention: scores and masks are sub-graphs, and what no graph can hold runs as in eager code."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import fineline
from tests.language.torch.higher_order import BACKENDS, captured, check_afresh, targets
from tests.oracle import Table, t

table = Table()


@pytest.fixture(scope="module", autouse=True)
def told_before():
    """What eager operators say once in a process has been said."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        flex_attention(*[torch.ones(1, 1, 16, 16)] * 3)


def heads(place, grad=False):
    return tuple([t(3 * place + k, 1, 2, 16, 16, grad=grad) for k in range(3)])


@table.snippet(args=heads, tolerance=1e-5)
def attention(q, k, v):
    return flex_attention(q, k, v)


@table.program(args=heads, tolerance=1e-5)
def scores_with_closures():
    bias, slope = t(1, 16, 16), t(2, 2)

    def fn(q, k, v):
        scale = q.mean()
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j] * slope[h] - scale)

    return fn, (bias, slope)


@table.snippet(args=heads, tolerance=1e-5)
def a_mask_made_inside(q, k, v):
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
    return flex_attention(q, k, v, block_mask=mask)


@table.program(args=heads, tolerance=1e-5)
def a_mask_made_outside():
    length = torch.tensor([9])
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (j < length[b]), 1, None, 16, 16, device="cpu")
    return lambda q, k, v: flex_attention(q, k, v, block_mask=mask, score_mod=lambda s, b, h, i, j: s * 2)


@table.snippet(args=heads, tolerance=1e-5)
def what_attention_gives_besides(q, k, v):
    out, aux = flex_attention(q, k, v, return_aux=AuxRequest(lse=True), scale=0.5)
    return out, aux.lse


@table.snippet(args=lambda place: (t(place, 1, 4, 16, 16), *heads(place)[1:]), tolerance=1e-5)
def attention_in_groups(q, k, v):
    return flex_attention(q, k, v, enable_gqa=True)


@table.snippet(args=heads, tolerance=1e-5, min_graphs=0, breaks=True)
def scores_with_effects(q, k, v):
    seen = []

    def score(s, b, h, i, j):
        seen.append(1)
        return s

    try:
        return flex_attention(q, k, v, score_mod=score)
    except Exception as e:
        return type(e).__name__


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    check_afresh(program, twin)


def test_a_mask_is_a_subgraph():
    offset = torch.tensor(3)

    def fn(q):
        mask = create_block_mask(lambda b, h, i, j: i + offset >= j, None, None, 16, 16, device="cpu")
        return flex_attention(q, q, q, score_mod=lambda s, b, h, i, j: s * offset, block_mask=mask)

    (gm,) = captured(fn, t(0, 1, 1, 16, 16))
    (node,) = gm.graph.find_nodes(op="call_function", target=torch.ops.higher_order.flex_attention)
    score, mask = getattr(gm, str(node.args[3].target)), getattr(gm, str(node.args[4][-1].target))
    assert targets(score) == ["mul"] and "ge" in targets(mask)
    assert len(node.args[7]) == len(node.args[8]) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_backends_take_attention(backend):
    bias = t(1, 16, 16)

    @torch.no_grad()
    def fn(q, k, v):
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cpu")
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + bias[i, j], block_mask=mask)

    args = heads(0)
    torch.testing.assert_close(fineline.compile(fn, backend=backend)(*args), fn(*args), rtol=1e-4, atol=1e-4)
