"""`DTensor`: tensors of which each process holds a part. The processes are two, of which one is there: its collectives return what it sends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor, ones
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils.checkpoint import checkpoint

import fineline
from tests.oracle import TWINS, Program, Table, check, t

table = Table()
FULL = {"fullgraph": True}
# Eager code waits for the collectives where no dispatch mode sees it.
# PyTorch warns of each draw on a CPU: on fakes, and when AOTAutograd traces, too.
ON_REAL_TENSORS = ("captured", "reference", "borders", "limit1", "strict", "reported")
WITHOUT_COUNTED = tuple(name for name in TWINS if name != "counted")
MESHES: list[DeviceMesh] = []


@pytest.fixture(scope="module", autouse=True)
def processes() -> Iterator[None]:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    MESHES[:] = [init_device_mesh("cpu", (2,), mesh_dim_names=(name,)) for name in ("one", "other")]
    GRIDS[:] = [init_device_mesh("cpu", (1, 2), mesh_dim_names=("outer", "inner"))]
    # From torch 2.14 on, the first one of a process logs that a CPU has no such collective.
    placed(0, Shard(0)).redistribute(placements=(Shard(1),))
    yield
    MESHES.clear()
    GRIDS.clear()
    dist.destroy_process_group()


def placed(place: int, *placements: Any, mesh: int = 0) -> Tensor:
    found: Tensor = DTensor.from_local(t(place), MESHES[mesh], placements)
    return found


def of(*placements: Any) -> Callable[[int], tuple]:
    return lambda place: (placed(place, *placements),)


@table.snippet(args=of(Shard(0)), max_graphs=1)
def operators(x: Tensor) -> Any:
    y = x.sin() + 1
    return y * 2, y.sum(1), y.shape, y.dtype


@table.snippet(args=lambda place: (placed(place, Shard(0)) if place % 2 else placed(place, Replicate()),), recompiles=(1,), must_recompile=True)
def other_placements(x: Any) -> Any:
    return x * 2, x.placements


@table.snippet(args=lambda place: (placed(place, Shard(0), mesh=place % 2),), recompiles=(1,), must_recompile=True)
def other_mesh(x: Any) -> Any:
    return x.cos(), x.device_mesh.mesh_dim_names


@table.snippet(args=of(Shard(0)), max_graphs=1)
def redistribution(x: Any) -> Any:
    whole = x.redistribute(x.device_mesh, [Replicate()])
    return whole.to_local() + 1, x.redistribute(placements=(Shard(-1),)), x.full_tensor()


@table.snippet(args=lambda place: (placed(place, Shard(0)), Shard(1) if place < 2 else Replicate()), recompiles=(2,), must_recompile=True)
def placement_as_argument(x: Any, placement: Any) -> Any:
    """An equal placement is taken for the one before."""
    return x.redistribute(placements=(placement,)) * 2


@table.snippet(args=of(Shard(0)), max_graphs=1)
def placements_made_inside(x: Any) -> Any:
    made = [Shard(0), Shard(1), Replicate(), Partial()]
    facts = [p.is_shard() or p.is_replicate() or p.is_partial() for p in made], made[1].dim, made[3].reduce_op, made[0] == x.placements[0]
    return x.redistribute(placements=made[1:2]), facts, made[1].is_shard(1), isinstance(made[2], Shard), made[0]


@table.program(args=lambda place: (t(place),), max_graphs=1)
def from_parts() -> Any:
    mesh = MESHES[0]

    def fn(x: Tensor) -> Any:
        placed_anew = DTensor.from_local(x * 2, mesh, [Shard(0)])
        return placed_anew.sum().full_tensor(), placed_anew

    return fn, None


@table.program(args=lambda place: (t(place),), max_graphs=1)
def write_into_a_placed_input() -> Any:
    mesh = MESHES[0]

    def fn(x: Tensor) -> Any:
        y: Any = DTensor.from_local(x, mesh, [Replicate()])
        y.add_(1)
        return x * 2

    return fn, None


@table.snippet(args=of(Shard(0)), max_graphs=1, backward=False)
def write_into_a_part(x: Any) -> Any:
    with torch.no_grad():
        part = x.to_local()
        part.add_(1)
    return part * 2, x * 1


@table.snippet(args=of(Shard(0)), max_graphs=1, backward=False)
def write_into_an_input(x: Any) -> Any:
    x.mul_(2)
    return x + 1


@table.snippet(args=of(Shard(0)), breaks=True)
def alive_at_a_graph_break(x: Any) -> Any:
    y, placements = x.sin(), x.placements
    print("here")
    return y.redistribute(placements=[Replicate()]), placements == y.placements


@table.snippet(args=lambda place: (placed(place, Shard(0)).redistribute(placements=[Replicate()], async_op=True),), max_graphs=1)
def part_that_is_on_its_way(x: Any) -> Any:
    return x + 1


@table.snippet(args=lambda place: (placed(place, Shard(0)), t(place)), max_graphs=1, backward=False)
def mixed_with_a_plain_tensor(x: Any, y: Tensor) -> Any:
    try:
        return x + y
    except RuntimeError:
        return x * 2


@table.snippet(args=lambda place: (placed(place, Shard(0)).requires_grad_(),), twins=WITHOUT_COUNTED, options={"fullgraph": True})
def a_checkpoint(x: Any) -> Any:
    y = checkpoint(lambda x: x.sin() * 2, x, use_reentrant=False)
    return checkpoint(lambda y: y.redistribute(placements=[Replicate()]) + 1, y, use_reentrant=False)


def two_layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))


@table.program(args=lambda place: (t(place, 4, 3),), max_graphs=1, twins=WITHOUT_COUNTED)
def tensor_parallel() -> Any:
    module = parallelize_module(two_layers(), MESHES[0], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    # What the module returns is on its way, in eager code.
    return lambda x: module(x) * 2, None


@table.program(args=lambda place: (t(place, 2, 2, 3),), max_graphs=1, twins=WITHOUT_COUNTED)
def sequence_parallel() -> Any:
    plan = {
        "0": SequenceParallel(), "1": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "1.0": ColwiseParallel(), "1.2": RowwiseParallel(output_layouts=Shard(1)),
    }  # fmt: skip
    module = parallelize_module(nn.Sequential(nn.LayerNorm(3), two_layers()), MESHES[0], plan)
    return lambda x: module(x) + x, None


# -- random numbers ------------------------------------------------------------------------------------------------------------
@table.snippet(args=lambda place: (placed(place, Shard(0)).requires_grad_(),), max_graphs=1, twins=ON_REAL_TENSORS)
def dropped(x: Any) -> Any:
    return F.dropout(x * 2, 0.5) + 1, F.dropout(x, 0.5, training=False)


@table.snippet(args=of(Shard(0)), max_graphs=1, backward=False, twins=ON_REAL_TENSORS)
def drawn(x: Any) -> Any:
    y = (x * 2).normal_()
    return y + torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.randn_like(y), torch.rand(2)


@table.program(args=lambda place: (t(place, 4, 3),), max_graphs=1, twins=ON_REAL_TENSORS)
def drops_in_a_module() -> Any:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 3))
    module = parallelize_module(layers, MESHES[0], {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()})
    return lambda x: module(x) * 2, None


# -- tables of which each process has some rows --------------------------------------------------------------------------------
def looked_up(place: int) -> tuple:
    return placed(place, Shard(0)).requires_grad_(), DTensor.from_local(torch.arange(2) + place, MESHES[0], [Replicate()])


@table.snippet(args=looked_up, max_graphs=1, twins=WITHOUT_COUNTED)
def embedding_of_shards(x: Any, index: Any) -> Any:
    return F.embedding(index, x).redistribute(placements=[Replicate()]) + 1, index * 2


@table.snippet(args=looked_up, max_graphs=1, twins=WITHOUT_COUNTED)
def rows_of_shards(x: Any, index: Any) -> Any:
    rows = torch.index_select(x, 0, index)
    return rows.placements != x.placements, rows * 2, x.gather(0, index.unsqueeze(1)).full_tensor()


@table.snippet(args=looked_up, breaks=True, min_graphs=0, recompiles=(1,), twins=WITHOUT_COUNTED)
def a_mask_that_leaves_the_call(x: Any, index: Any) -> Any:
    rows = F.embedding(index, x)
    placements = rows.placements
    return rows.redistribute(placements=[Replicate()]) + 1, [type(p).__name__ for p in placements], placements == rows.placements, placements


@table.snippet(args=looked_up, breaks=True, twins=WITHOUT_COUNTED)
def rows_at_a_graph_break(x: Any, index: Any) -> Any:
    y = F.embedding(index, x * 2)
    print("here")
    return y.redistribute(placements=[Replicate()]) + 1


@table.program(args=lambda place: (torch.arange(4) + place,), max_graphs=1, twins=WITHOUT_COUNTED)
def embedding_in_a_module() -> Any:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Embedding(8, 3), nn.Linear(3, 4))
    module = parallelize_module(layers, MESHES[0], {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel()})
    return lambda x: module(x) * 2, module


# -- sizes that vary -----------------------------------------------------------------------------------------------------------
def lengths(*placements: Any) -> Callable[[int], tuple]:
    """Returns arguments of another length in each call."""
    return lambda place: (DTensor.from_local(t(place, 3 + place, 4), MESHES[0], placements),)


@table.snippet(args=lengths(Shard(0)), calls=4, recompiles=(1,), max_graphs=2)
def other_lengths(x: Any) -> Any:
    y = (x * 2).reshape(x.shape[0] * 4)
    return y, x.sum(1) + len(x), x.to_local() * x.to_local().shape[0]


@table.snippet(args=lengths(Replicate()), calls=4, recompiles=(1,), max_graphs=2)
def other_lengths_on_all(x: Any) -> Any:
    return x @ x.t(), x.redistribute(placements=[Shard(1)]), x.full_tensor() + 1


@table.snippet(args=lengths(Replicate()), calls=4, recompiles=(1, 2, 3), max_graphs=4)
def other_lengths_in_parts(x: Any) -> Any:
    """Whether all parts are equally long is asked of the sizes."""
    y = x.redistribute(placements=[Shard(0)])
    return y * 2, y.to_local() + 1, (y * x).sum()


@table.snippet(args=lengths(Shard(0)), calls=4, recompiles=(1, 2, 3), max_graphs=3)
def length_that_decides(x: Any) -> Any:
    return x + 1 if x.shape[0] % 4 else x - 1


@table.snippet(args=lengths(Shard(0)), calls=4, recompiles=(1,), max_graphs=2, backward=False)
def views_of_other_lengths(x: Any) -> Any:
    return x.t(), x[0], x.detach(), x


@table.program(args=lambda place: (t(place, 3 + place, 3),), calls=4, recompiles=(1,), max_graphs=2, twins=WITHOUT_COUNTED)
def batches_of_other_lengths() -> Any:
    module = parallelize_module(two_layers(), MESHES[0], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return lambda x: module(x) * 2, None


@table.snippet(args=of(Shard(0)), options=FULL, max_graphs=1, twins=WITHOUT_COUNTED)
def norms(x: Any) -> Any:
    n = torch.linalg.vector_norm(x)
    return n, (x / x.norm(3)).sum(), n.full_tensor() * 2, torch._foreach_norm([x, x * 2])[1], n.placements[0].is_partial()


@table.snippet(args=of(Shard(0)), breaks=True, twins=WITHOUT_COUNTED)
def a_norm_across_a_graph_break(x: Any) -> Any:
    n = (x * 2).norm()
    print(end="")
    return n * 2


GRIDS: list[DeviceMesh] = []


@table.snippet(args=of(Shard(0)), options=FULL, max_graphs=1)
def slices_of_a_mesh(x: Any) -> Any:
    part = GRIDS[0]["inner"]
    y = DTensor.from_local(x.to_local(), part, [Shard(0)]).redistribute(part, [Replicate()])
    return y.to_local() * part.size(), part.get_local_rank(), GRIDS[0].get_coordinate(), part.mesh_dim_names, GRIDS[0]["outer", "inner"].ndim


@table.snippet(args=of(Shard(0)), max_graphs=1)
def a_slice_that_a_mesh_lacks(x: Any) -> Any:
    try:
        return x * GRIDS[0]["middle"].size()
    except KeyError as e:
        return x * 2, str(e)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_mesh_that_is_made_anew(backend: str) -> None:
    """PyTorch's cache gives results the first mesh, which equals the second one, and AOTAutograd knows the objects apart."""

    def step(x: Any) -> Any:
        return (x * 3).cos().sum()

    step(placed(0, Shard(0)).requires_grad_())
    mesh, (x, y) = init_device_mesh("cpu", (2,), mesh_dim_names=("one",)), (t(0).requires_grad_(), t(0).requires_grad_())
    fast = fineline.compile(step, backend=backend)
    for _ in range(2):
        found, expected = fast(DTensor.from_local(x, mesh, [Shard(0)])), step(DTensor.from_local(y, mesh, [Shard(0)]))
        assert torch.allclose(found.to_local(), expected.to_local())
        found.to_local().backward()
        expected.to_local().backward()
        assert torch.allclose(x.grad, y.grad)


# -- blocks that decide how operators are computed ---------------------------------------------------------------------------------
@table.snippet(args=lambda place: (placed(place, Replicate()), t(place)), options=FULL, max_graphs=1)
def implicit_replicas(x: Any, y: Tensor) -> Any:
    with implicit_replication():
        z = x + y
    return z * 2


@table.snippet(args=lambda place: (placed(place, Replicate()), t(place)), breaks=True, backward=False)
def implicit_replicas_around_a_graph_break(x: Any, y: Tensor) -> Any:
    with implicit_replication():
        z = x + y
        print(end="")
        z = z * y
    return z * 2


@table.snippet(args=lambda place: (placed(place, Shard(1)), torch.arange(3)), options=FULL, max_graphs=1)
def parallel_loss(x: Any, index: Tensor) -> Any:
    target = DTensor.from_local(index, x.device_mesh, [Replicate()])
    with loss_parallel():
        return F.cross_entropy(x, target)


@table.snippet(args=lambda place: (placed(place, Shard(1)), torch.arange(3)), breaks=True)
def parallel_loss_with_a_backward_pass(x: Any, index: Tensor) -> Any:
    target, w = DTensor.from_local(index, x.device_mesh, [Replicate()]), x.detach().requires_grad_()
    with loss_parallel():
        loss = F.cross_entropy(w * 2, target)
        loss.backward()
    return loss * 2, w.grad


class Interrupted(Exception):
    pass


@table.snippet(args=lambda place: (placed(place, Shard(1)), torch.arange(3)), options=FULL, max_graphs=1)
def parallel_losses_in_turns(x: Any, index: Tensor) -> Any:
    """An exception leaves the handlers on, which the next block switches off."""
    target = DTensor.from_local(index, x.device_mesh, [Replicate()])
    with contextlib.suppress(Interrupted), loss_parallel():
        one = F.cross_entropy(x, target)
        raise Interrupted
    with loss_parallel():
        two = F.cross_entropy(x * 2, target)
    return one, two, F.cross_entropy(x.redistribute(placements=[Replicate()]), target)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("raises", [False, True])
def test_handlers_that_a_block_leaves(backend: str, raises: bool) -> None:
    def step(x: Any, target: Any) -> Any:
        with contextlib.suppress(Interrupted), loss_parallel():
            loss = F.cross_entropy(x, target)
            if raises:
                raise Interrupted
        return loss * 2

    fast, handlers = fineline.compile(step, backend=backend), DTensor._op_dispatcher._custom_op_handlers
    before = dict(handlers)
    for place in range(3):
        x, target = placed(place, Shard(1)), DTensor.from_local(torch.arange(3), MESHES[0], [Replicate()])
        found, left = fast(x, target), dict(handlers)
        handlers.clear()
        handlers.update(before)
        expected = step(x, target)
        assert torch.equal(found.to_local(), expected.to_local()) and left == handlers and (left != before) == raises
        handlers.clear()
        handlers.update(before)
    assert len(fineline.report(fast).graphs) == 1


def test_handlers_of_somebody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = DTensor._op_dispatcher._custom_op_handlers
    monkeypatch.setitem(handlers, torch.ops.aten._log_softmax.default, lambda call, args, kwargs: args[0])

    def step(x: Any) -> Any:
        with loss_parallel():
            y = x * 2
        return y + 1

    x, before = placed(0, Shard(1)), dict(handlers)
    fast = fineline.compile(step, backend="eager")
    for _ in range(2):
        assert torch.equal(fast(x).to_local(), x.to_local() * 2 + 1)
        assert torch.ops.aten._log_softmax.default not in handlers
        handlers.update(before)
    assert [event.id for event in fineline.report(fast).events if event.kind == "break"] == ["FL411"]


# -- what breaks the graph -----------------------------------------------------------------------------------------------------
@table.program(args=lambda place: (t(place),), breaks=True, backward=False)
def distribution() -> Any:
    mesh = MESHES[0]
    return lambda x: (distribute_tensor(x * 2, mesh, [Shard(0)]) + 1, ones(2, 3, device_mesh=mesh, placements=[Replicate()])), None


@table.snippet(args=of(Shard(0)), breaks=True, backward=False)
def spec_of_a_result(x: Any) -> Any:
    y = x * 2
    return y._spec.placements, y + 1


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_programs(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_rows_that_are_returned(backend: str) -> None:
    """The caller takes the mask away, without which the next lookup would have to compare its own."""
    fast = fineline.compile(lambda x, index: (x * 2, F.embedding(index, x)), backend=backend)
    for place in range(3):
        x, index = looked_up(place)
        y, rows = fast(x, index)
        found = rows.redistribute(placements=[Replicate()])
        expected = F.embedding(index, x).redistribute(placements=[Replicate()])
        assert torch.equal(found.to_local(), expected.to_local()) and torch.equal(y.to_local(), (x * 2).to_local())
    left = [event.reason for event in fineline.report(fast).events if event.id == "FL435"]
    assert [("a mask" in reason) for reason in left] == [True] * (backend != "eager")
    assert len(fineline.report(fast).graphs) == 1


def test_draws_that_set_the_states_of_generators_break_the_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tracker:
        distribute_region_enabled = False

    def step(x: Any) -> Any:
        return F.dropout(x * 2, 0.5) + 1

    fast, x = fineline.compile(step, backend="eager"), placed(0, Shard(0))
    fast(x)
    assert len(fineline.report(fast).graphs) == 1
    monkeypatch.setattr(torch.distributed.tensor._random, "_rng_tracker", Tracker())
    results = []
    for run in (fast, fast, step):
        torch.manual_seed(0)
        results.append(run(x).to_local())
    assert torch.equal(results[0], results[2]) and torch.equal(results[1], results[2])
    assert [event.id for event in fineline.report(fast).events if event.kind == "break"] == ["FL503"]
