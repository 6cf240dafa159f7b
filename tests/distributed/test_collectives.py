"""Programs with collectives, in a group of one process and in all configurations: what they write, what guards them, what is left eager."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.oracle import Program, Table, check, t

table = Table()
# PyTorch 2.13 renamed these, and warns of the earlier names where nothing is compiled.
gather = getattr(functional, "all_gather_single", functional.all_gather_tensor)
scatter = getattr(functional, "reduce_scatter_single", functional.reduce_scatter_tensor)


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@table.snippet()
def reduced(x):
    y = x * 2
    dist.all_reduce(y)
    return y + 1


# PyTorch warns only where nothing is compiled; under fullgraph, the block that ignores warnings is refused.
@table.program(
    calls=4, recompiles=(2,), must_recompile=True, change={2: lambda s: s["ranks"].append(0)}, twins=("captured", "reference", "borders", "fake", "aot")
)  # fmt: skip
def of_a_list_of_ranks():
    state = {"ranks": [0]}

    def total(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return functional.all_reduce(x * len(state["ranks"]), "sum", state["ranks"][:1]) + 1

    return total, state


@table.snippet()
def reduces_its_input(x):
    dist.all_reduce(x, dist.ReduceOp.MAX)
    return x * 2


@table.snippet()
def reduces_a_view_of_its_input(x):
    dist.all_reduce(x[1])
    dist.broadcast(x[0], src=0)
    return x.sum(0)


@table.snippet()
def result_is_none(x):
    y = x * 2
    return dist.all_reduce(y), dist.broadcast(y, 0), y


@table.snippet()
def written_twice(x):
    y = x * 2
    z = y.view(-1)
    dist.all_reduce(y)
    y.add_(1)
    dist.all_reduce(z)
    return y, z


@table.snippet()
def gathered_in_a_list(x):
    parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x)
    return torch.cat(parts), parts


@table.program()
def gathered_in_a_list_of_the_callers():
    parts = [torch.zeros(4, 4)]

    def fn(x):
        dist.all_gather(parts, x * 2)
        return parts[0] + 1

    return fn, parts


@table.snippet()
def exchanged(x):
    y, z = torch.empty_like(x), torch.empty_like(x)
    dist.all_to_all_single(y, x + 1)
    dist.all_to_all_single(z, x + 2, [4], [4])
    return y * 2, z


@table.snippet(breaks=True, min_graphs=0)
def exchanged_unequally(x):
    y = torch.empty_like(x)
    sizes = [len(x)]
    dist.all_to_all_single(y, x + 1, sizes, sizes)
    sizes.append(1)
    return y, sizes


@table.snippet(grad=True, breaks=True, min_graphs=0)
def under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        dist.all_reduce(y)
    return y * x


@table.snippet(grad=True)
def of_a_detached_tensor(x):
    loss = x.square().mean()
    seen = loss.detach().clone()
    dist.all_reduce(seen)
    return loss * 2, seen


@table.program(breaks=True, min_graphs=0)
def refused_and_handled():
    def fn(x):
        y = x * 2
        try:
            dist.broadcast(y, 7)
        except Exception as e:
            return y, type(e).__name__
        return y

    return fn, None


@table.program(calls=4, recompiles=(2,), must_recompile=True, change={2: lambda s: s.update(op=dist.ReduceOp.MAX)})
def operations_in_turns():
    state = {"op": dist.ReduceOp.SUM}

    def fn(x):
        y = x * 2
        dist.all_reduce(y, op=state["op"])
        return y

    return fn, state


@table.snippet()
def functional_ones(x):
    world = dist.group.WORLD
    y = functional.all_reduce(x * 2, "sum", world)
    z = scatter(gather(y, 0, world), "max", 0, world)
    return z * 1, functional.broadcast(x, 0, world) * 1


@table.snippet(grad=True)
def functional_with_gradients(x):
    return functional.all_reduce((x * 2).sin(), "sum", dist.group.WORLD) * 2


@table.snippet()
def questions(x):
    y = x * dist.get_world_size(dist.group.WORLD)
    dist.all_reduce(y, group=dist.group.WORLD)
    return y + dist.get_rank() + len(dist.get_process_group_ranks(dist.group.WORLD)), isinstance(dist.group.WORLD, dist.ProcessGroup)


class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        grad = grad.clone()
        dist.all_reduce(grad)
        return grad * 3


@table.program(grad=True, breaks=True)
def in_an_autograd_function():
    weight = nn.Parameter(torch.ones(4))

    def fn(x):
        return Summed.apply(x * weight).relu() * 2

    return fn, weight


@table.program(grad=True, breaks=True, min_graphs=0)
def in_a_checkpoint():
    def inside(x):
        return functional.all_reduce(x.sin(), "sum", dist.group.WORLD).cos()

    def fn(x):
        return checkpoint(inside, x, use_reentrant=False) * 2

    return fn, None


@table.snippet(breaks=True, min_graphs=0)
def waited_for_later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


@table.program(calls=4, recompiles=(1, 2, 3), args=lambda i: (t(i, 2 + i, 3),), breaks=True)
def other_lengths():
    def fn(x):
        y = x * 2
        dist.all_reduce(y)
        return y.sum(0), gather(y, 0, dist.group.WORLD) * 1

    return fn, None


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)
