"""Checkpoints: what lies in one is a sub-graph that the backward pass computes again."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._higher_order_ops import map as hop_map
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, checkpoint_sequential, create_selective_checkpoint_contexts

import fineline
from tests import oracle
from tests.language.torch.higher_order import BACKENDS, captured, same_gradients
from tests.oracle import Table, t

table = Table()


class Block(nn.Module):
    def __init__(self, seed=0, drop=0.0):
        super().__init__()
        self.up, self.down, self.drop = nn.Linear(4, 8), nn.Linear(8, 4), drop
        for k, p in enumerate(self.parameters()):
            p.data = t(seed + k, *p.shape) / 2

    def forward(self, x, scale=1.0, shift=None):
        y = x + self.down(F.dropout(F.gelu(self.up(x)), self.drop)) * scale
        return y if shift is None else y + shift


@table.program(grad=True, tolerance=1e-6)
def a_checkpoint():
    blocks = nn.ModuleList([Block(k) for k in range(2)])

    def fn(x):
        for block in blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return x

    return fn, blocks


@table.program(grad=True, tolerance=1e-6)
def a_checkpoint_with_keywords():
    block = Block()

    def fn(x):
        y = x.cos()
        run = functools.partial(checkpoint, use_reentrant=False)
        return run(block, y, 0.5, shift=y.sum()), run(lambda: block(y) * x)

    return fn, block


@table.program(grad=True, tolerance=1e-6)
def a_checkpoint_in_a_checkpoint():
    a, b = Block(), Block(5)

    def inner(x):
        return checkpoint(b, x, use_reentrant=False).sin()

    return lambda x: checkpoint(lambda x: inner(a(x)) + inner(x), x, use_reentrant=False), (a, b)


@table.program(grad=True, tolerance=1e-6)
def a_checkpoint_with_dropout():
    block = Block(drop=0.5)
    return lambda x: checkpoint(block, x, use_reentrant=False) + torch.rand(4), block


@table.snippet(grad=True)
def a_checkpoint_gives_structures(x):
    out = checkpoint(lambda x, k: {"a": x * k, "b": (x, [x.sin().view(-1), None, k])}, x, 3, use_reentrant=False)
    return out, out["b"][0] is x


# No backend is given what is differentiated twice.
@table.snippet(grad=True, min_graphs=0)
def gradients_through_a_checkpoint(x):
    y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
    return torch.autograd.grad(y.sum(), x, create_graph=True)[0]


@table.snippet()
def a_checkpoint_without_gradients(x):
    with torch.no_grad():
        y = checkpoint(torch.sin, x, use_reentrant=False)
    return y + checkpoint(torch.cos, x, use_reentrant=False, preserve_rng_state=False)


def saves_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op is torch.ops.aten.mm.default else CheckpointPolicy.PREFER_RECOMPUTE


@table.program(grad=True, tolerance=1e-6)
def checkpoints_that_select():
    block = Block()

    def fn(x):
        by_list = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
        by_function = functools.partial(create_selective_checkpoint_contexts, saves_products)
        x = checkpoint(block, x, use_reentrant=False, context_fn=by_list)
        return checkpoint(block, x, use_reentrant=False, context_fn=by_function)

    return fn, block


@table.program(grad=True, tolerance=1e-6)
def checkpoints_in_sequence():
    model = nn.Sequential(*[Block(k) for k in range(4)])
    return lambda x: checkpoint_sequential(model, 2, x, use_reentrant=False), model


@table.program(grad=True, min_graphs=0, breaks=True)
def a_checkpoint_with_effects():
    seen = []

    def body(x):
        seen.append(x.shape)
        return x.sin()

    return lambda x: checkpoint(body, x * 2, use_reentrant=False) + 1, seen


@table.program(grad=True, min_graphs=0, breaks=True, tolerance=1e-6)
def a_checkpoint_of_a_batch_norm():
    norm = nn.BatchNorm1d(4)
    return lambda x: checkpoint(norm, x, use_reentrant=False) + 1, norm


@table.snippet(grad=True, min_graphs=0, breaks=True)
def a_reentrant_checkpoint(x):
    return checkpoint(torch.sin, x * 2, use_reentrant=True) + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    oracle.check(program, twin)


def test_one_program_for_all_sizes():
    seen = []

    def probe(gm, inputs):
        seen.append(gm)
        return gm.forward

    def fn(x):
        y = checkpoint(lambda x: x.sin() * x.shape[0], x, use_reentrant=False)
        return torch.func.vmap(torch.func.grad(lambda r: r.cos().sum()))(y) + hop_map(lambda r: r * 2, y)

    compiled = fineline.compile(fn, backend=probe)
    for k in (3, 5, 9, 2, 7):
        assert torch.equal(compiled(t(0, k, 4)), fn(t(0, k, 4)))
    assert len(seen) <= 3  # sizes 2 and 3 as they are, the others as any


def calling(gm, inputs):
    """A backend whose own function calls the graph."""
    return lambda *args: gm(*args)


def editing(gm, inputs):
    """... after it has run, and has been changed."""
    gm(*inputs)
    gm.graph.lint()
    gm.recompile()
    return lambda *args: gm(*args)


@pytest.mark.parametrize("backend", [*BACKENDS, calling, editing])
@pytest.mark.parametrize("drop", [0.0, 0.5])
def test_backends_compute_again(backend, drop):
    """What lies in a checkpoint is computed in the backward pass; a little memory is kept in its place, and random numbers are the same."""
    block, saved = Block(drop=drop), []

    def pack(x):
        saved.append(x)
        return x

    def fn(x):
        return checkpoint(block, checkpoint(block, x, use_reentrant=False), use_reentrant=False)

    if backend == "inductor" and drop:
        pytest.skip("other random numbers than eager's")
    same_gradients(fn, backend, t(), parameters=list(block.parameters()))
    compiled, x = fineline.compile(fn, backend=backend), t(grad=True)
    compiled(x)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        compiled(x)
    parameters = {p.data_ptr() for p in block.parameters()}
    # Beside the states of the random generator.
    kept = [s for s in saved if s.is_floating_point() and s.data_ptr() not in parameters]
    assert sum([s.numel() for s in kept]) <= 3 * x.numel()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_keep_what_a_policy_says(backend):
    block = Block()

    def fn(x):
        keep = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
        return checkpoint(block, x, use_reentrant=False, context_fn=keep)

    same_gradients(fn, backend, t(), parameters=list(block.parameters()))
    (gm,) = captured(fn, t(grad=True))
    assert gm.checkpointed_0.meta["_checkpoint_context_fn"].func is create_selective_checkpoint_contexts
