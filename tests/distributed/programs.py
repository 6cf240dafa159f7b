"""Programs for several processes. Each gets a `Run`, trains or computes by the function that the run's engine compiled, and returns what it saw."""

from __future__ import annotations

import contextlib
import io
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import fineline

STEPS = 10
WIDTH = 16


@dataclass
class Run:
    """One run of a program, on one rank. ``compile``: the engine's; ``graphs``: how many operators each graph has that its backend got."""

    compile: Callable[..., Any]
    rank: int
    size: int
    folder: str
    graphs: list[int] = field(default_factory=list)
    exact: bool = True

    def batches(self, rows: int = 4, steps: int = STEPS) -> list[Tensor]:
        """Returns other numbers on each rank."""
        made = torch.Generator().manual_seed(self.rank + 1)
        return [torch.randn(rows, WIDTH, generator=made) for _ in range(steps)]

    def train(self, step: Callable[..., Any], model: nn.Module, batches: list[Tensor] | None = None) -> dict[str, Any]:
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), []
        for x in batches or self.batches():
            loss = step(x).square().mean()
            loss.backward()
            losses.append(loss.item())
            optimizer.step()
            optimizer.zero_grad()
        return {"losses": losses, **values(model)}


def values(model: nn.Module) -> dict[str, Any]:
    return {name.removeprefix("module."): local(t) for name, t in model.state_dict().items()}


def local(t: Any) -> Tensor:
    """Returns the part of a tensor that this rank holds."""
    return (t.to_local() if hasattr(t, "to_local") else t).detach().clone()


@dataclass
class Program:
    """A program. ``graphs``: how many operators each graph has that a backend gets, over all calls. ``makes_groups``: it destroys the default group."""

    fn: Callable[[Run], Any]
    graphs: list[int]
    makes_groups: bool


PROGRAMS: dict[str, Program] = {}


def program(graphs: str, makes_groups: bool = False) -> Callable[[Callable], Callable]:
    """Registers a program."""

    def register(fn: Callable) -> Callable:
        PROGRAMS[fn.__name__] = Program(fn, [int(n) for n in graphs.split()], makes_groups)
        return fn

    return register


class Net(nn.Module):
    def __init__(self, layers: int = 3, norm: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(layers)])
        self.norm = nn.BatchNorm1d(WIDTH) if norm else None

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu() + x
        return self.norm(x) if self.norm is not None else x


# -- DistributedDataParallel ------------------------------------------------------------------------------------------------
@program("9")
def ddp_outside(run: Run) -> Any:
    model = DistributedDataParallel(Net())
    return run.train(run.compile(model), model)


@program("1 9 1")
def ddp_inside(run: Run) -> Any:
    model = DistributedDataParallel(Net())
    return run.train(run.compile(lambda x: model(x * 2) + 1), model)


@program("9")
def ddp_around(run: Run) -> Any:
    model = DistributedDataParallel(run.compile(Net()))
    found = run.train(model, model)
    return {name.replace("_orig_mod.", ""): value for name, value in found.items()}


@program("9 2")
def ddp_whole_step(run: Run) -> Any:
    model = DistributedDataParallel(Net())
    loss = run.compile(lambda x: model(x).square().mean())
    return run.train(lambda x: loss(x), model)


@program("3 3 3 3")
def ddp_buckets(run: Run) -> Any:
    model = DistributedDataParallel(Net(4), bucket_cap_mb=0.001)
    return run.train(run.compile(model), model)


@program("3 3 5")
def ddp_buffers(run: Run) -> Any:
    model = DistributedDataParallel(Net(norm=True), bucket_cap_mb=0.001)
    return run.train(run.compile(model), model)


@program("3 3 3")
def ddp_static_graph(run: Run) -> Any:
    model = DistributedDataParallel(Net(), static_graph=True, bucket_cap_mb=0.001)
    return run.train(run.compile(model), model)


@program("3 3 3")
def ddp_bucket_views(run: Run) -> Any:
    model = DistributedDataParallel(Net(), gradient_as_bucket_view=True, bucket_cap_mb=0.001)
    return run.train(run.compile(model), model)


@program("3 3 3")
def ddp_accumulation(run: Run) -> Any:
    """Two batches before each step: the first without an exchange."""
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    step, optimizer = run.compile(model), torch.optim.SGD(model.parameters(), lr=0.05)
    seen = []
    for i, x in enumerate(run.batches(steps=2 * STEPS)):
        with model.no_sync() if i % 2 == 0 else contextlib.nullcontext():
            step(x).square().mean().backward()
        seen.append([p.grad.clone() for p in model.parameters()])
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    return {"seen": seen, **values(model)}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.last = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        self.takes_first = True

    def forward(self, x: Tensor) -> Tensor:
        return self.last((self.first if self.takes_first else self.second)(x).relu())


@program("3")
def ddp_unused_parameters(run: Run) -> Any:
    """A branch that the ranks take in turns: the other one's parameters get no gradient on this rank."""
    model = DistributedDataParallel(Branching(), find_unused_parameters=True)
    step, optimizer, seen = run.compile(model), torch.optim.SGD(model.parameters(), lr=0.05), []
    for i, x in enumerate(run.batches()):
        model.module.takes_first = (i + run.rank) % 3 != 0
        step(x).square().mean().backward()
        seen.append([None if p.grad is None else p.grad.clone() for p in model.parameters()])
        optimizer.step()
        optimizer.zero_grad()
    return {"seen": seen, **values(model)}


class Interrupted(Net):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x).relu()
            print(tuple(x.shape))
        return x


@program("2 2")
def ddp_graph_breaks(run: Run) -> Any:
    model, out = DistributedDataParallel(Interrupted(), bucket_cap_mb=0.001), io.StringIO()
    with contextlib.redirect_stdout(out):
        found = run.train(run.compile(model), model)
    return {"printed": out.getvalue(), **found}


class Checkpointed(Net):
    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(lambda v, layer=layer: layer(v).relu() + v, x, use_reentrant=False)
        return x


@program("2 2 2")
def ddp_checkpoint(run: Run) -> Any:
    model = DistributedDataParallel(Checkpointed(), bucket_cap_mb=0.001)
    return run.train(run.compile(model), model)


class Shared(nn.Module):
    """A weight that is used twice, and a write into what crosses a bucket's border."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        half = y[:, : WIDTH // 2]
        half.mul_(0.5)
        self.count += 1
        with torch.no_grad():
            shift = self.last(y).mean(0)
        return self.last(nn.functional.linear(y * self.scale, self.first.weight) + shift) + half.mean()


@program("14")
def ddp_writes_and_shared_weights(run: Run) -> Any:
    model = DistributedDataParallel(Shared(), bucket_cap_mb=0.0001)
    return run.train(run.compile(model), model)


class Mixed(nn.Module):
    """Dropout, autocast in a part of the code, a frozen layer, an embedding, and two results."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(8, WIDTH)
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])
        self.layers[1].requires_grad_(False)

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        y = self.layers[1](self.layers[0](x + self.table(index))).relu()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            z = nn.functional.dropout(self.layers[2](y), 0.5)
        return self.layers[3](z.float()), {"seen": y.detach(), "other": y.mean(1)}


@program("2 3 12 3")
def ddp_mixed_module(run: Run) -> Any:
    model = DistributedDataParallel(Mixed(), bucket_cap_mb=0.0001)
    step, seen = run.compile(model), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(run.rank)
    for x in run.batches():
        found, more = step(x, (x[:, 0] * 4).long() % 8)
        (found.square().mean() + more["other"].sum()).backward()
        seen.append((found.detach(), more["seen"], [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
        optimizer.step()
        optimizer.zero_grad()
    return seen


@program("3 3 3 2 18 2 18")
def ddp_training_step(run: Run) -> Any:
    """The whole step is compiled: the backward pass and the optimizer too."""
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

    def step(x: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = run.compile(step)
    return [step(x) for x in run.batches()], values(model)


@program("9")
def ddp_evaluation(run: Run) -> Any:
    model = DistributedDataParallel(Net())
    step = run.compile(model.eval())
    with torch.no_grad():
        return [step(x) for x in run.batches()]


@program("3 3 3 3 3 3")
def ddp_lengths(run: Run) -> Any:
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    return run.train(run.compile(model), model, [x[: 2 + i % 3] for i, x in enumerate(run.batches(rows=5))])


# -- FSDP ----------------------------------------------------------------------------------------------------------------------
def sharded(blocks: bool = True, **options: Any) -> nn.Module:
    model = Net()
    for layer in model.layers if blocks else ():
        fully_shard(layer, **options)
    return fully_shard(model, **options)


@program("9")
def fsdp_whole(run: Run) -> Any:
    model = sharded(blocks=False)
    return run.train(run.compile(model), model)


@program("1 2 1 2")
def fsdp_blocks(run: Run) -> Any:
    model = sharded()
    return run.train(run.compile(model), model)


@program("1 1")
def fsdp_compiled_blocks(run: Run) -> Any:
    model = Net()
    for layer in model.layers:
        layer.forward = run.compile(layer.forward)
        fully_shard(layer)
    fully_shard(model)
    return run.train(model, model)


@program("1 1 1")
def fsdp_compiled_calls(run: Run) -> Any:
    """As `Module.compile` does it: the call of the module is compiled, with the hooks."""
    model = Net()
    for layer in model.layers:
        layer._compiled_call_impl = run.compile(layer._call_impl)
        fully_shard(layer)
    fully_shard(model)
    return run.train(model, model)


@program("18 1 2 1 2 6")
def fsdp_parameters_outside(run: Run) -> Any:
    """Reads parameters where they are sharded, and where they are whole, in the function that is compiled."""
    model = sharded()

    def step(x: Tensor) -> Tensor:
        penalty = sum([p.square().sum() for p in model.parameters()])
        y = model(x)
        return y + x.mean() * 0.1 + (penalty.full_tensor() if hasattr(penalty, "full_tensor") else penalty) * 0.01

    return run.train(run.compile(step), model)


@program("1 2 1 2")
def fsdp_no_reshard(run: Run) -> Any:
    model = sharded(reshard_after_forward=False)
    return run.train(run.compile(model), model)


@program("1 2 1 2")
def fsdp_mixed_precision(run: Run) -> Any:
    model = sharded(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return run.train(run.compile(model), model)


@program("1 2 1 2")
def fsdp_accumulation(run: Run) -> Any:
    model = sharded()
    step, optimizer, losses = run.compile(model), torch.optim.SGD(model.parameters(), lr=0.05), []
    for i, x in enumerate(run.batches(steps=2 * STEPS)):
        model.set_requires_gradient_sync(i % 2 == 1)
        loss = step(x).square().mean()
        loss.backward()
        losses.append(loss.item())
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    return {"losses": losses, **values(model)}


@program("1 2 1 2 1 2")
def fsdp_train_and_evaluate(run: Run) -> Any:
    model = sharded()
    step = run.compile(model)
    batches, seen = run.batches(), []
    for i in range(3):
        seen.append(run.train(step, model, batches[i : i + 2]))
        with torch.no_grad():
            seen.append(step(batches[0]))
        model.unshard()
        seen.append(step(batches[1]).detach())
        model.reshard()
    return seen


@program("1 2 1 2")
def fsdp_state_dict(run: Run) -> Any:
    """A checkpoint of a compiled model, loaded into an eager one; training goes on there."""
    model = sharded()
    step = run.compile(model)
    found = run.train(step, model, run.batches()[:5])
    other = sharded()
    dcp.save(get_model_state_dict(step), checkpoint_id=run.folder)
    taken = get_model_state_dict(other)
    dcp.load(taken, checkpoint_id=run.folder)
    set_model_state_dict(other, taken)
    return found, run.train(other, other, run.batches()[5:])


@program("3 3 3")
def ddp_state_dict(run: Run) -> Any:
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    found = run.train(run.compile(model), model, run.batches()[:5])
    # Not of what `compile` returns: PyTorch leaves out DDP's prefix of names only where it meets the module itself.
    dcp.save(get_model_state_dict(model), checkpoint_id=run.folder)
    other = DistributedDataParallel(Net())
    taken = get_model_state_dict(other)
    dcp.load(taken, checkpoint_id=run.folder)
    set_model_state_dict(other, taken)
    return found, run.train(other, other, run.batches()[5:])


# -- DTensor ---------------------------------------------------------------------------------------------------------------------
class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x).relu())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(WIDTH), MLP()

    def forward(self, x: Tensor) -> Tensor:
        return self.mlp(self.norm(x)) + x


def same_batches(run: Run) -> list[Tensor]:
    """Returns batches that are the same on all ranks."""
    made = torch.Generator().manual_seed(1)
    return [torch.randn(4, WIDTH, generator=made) for _ in range(STEPS)]


def tensor_parallel_mlp(run: Run) -> nn.Module:
    mesh = init_device_mesh("cpu", (run.size,))
    return parallelize_module(MLP(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})


@program("9")
def dtensor_tensor_parallel(run: Run) -> Any:
    model = tensor_parallel_mlp(run)
    return run.train(run.compile(model), model, same_batches(run))


@program("9")
def dtensor_state_dict(run: Run) -> Any:
    model, other = tensor_parallel_mlp(run), tensor_parallel_mlp(run)
    step = run.compile(model)
    found = run.train(step, model, same_batches(run)[:5])
    dcp.save(get_model_state_dict(step), checkpoint_id=run.folder)
    taken = get_model_state_dict(other)
    dcp.load(taken, checkpoint_id=run.folder)
    set_model_state_dict(other, taken)
    return found, run.train(other, other, same_batches(run)[5:])


@program("12")
def dtensor_sequence_parallel(run: Run) -> Any:
    plan = {
        "norm": SequenceParallel(), "mlp": PrepareModuleInput(input_layouts=Shard(1), desired_input_layouts=Replicate()),
        "mlp.up": ColwiseParallel(), "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }  # fmt: skip
    model = parallelize_module(Block(), init_device_mesh("cpu", (run.size,)), plan)
    batches = [x.view(2, 2, WIDTH).repeat(1, run.size // 2, 1).chunk(run.size, 1)[run.rank].contiguous() for x in same_batches(run)]
    return run.train(run.compile(model), model, batches)


@program("11")
def dtensor_as_parameter(run: Run) -> Any:
    """Placed parameters in plain code: the graph's results are placed, too, and the gradients."""
    mesh = init_device_mesh("cpu", (run.size,))
    torch.manual_seed(0)
    weights = [nn.Parameter(distribute_tensor(torch.randn(WIDTH, WIDTH), mesh, [p])) for p in (Shard(0), Shard(1), Replicate())]

    def step(x: Tensor) -> Any:
        y = DTensor.from_local(x, mesh, [Replicate()])
        for w in weights:
            y = (y @ w).tanh()
        summed = y.sum(0)
        return y, summed.redistribute(placements=[Replicate()]), y.full_tensor(), summed.to_local()

    step, optimizer, seen = run.compile(step), torch.optim.SGD(weights, lr=0.05, momentum=0.9), []
    for x in same_batches(run):
        y, summed, whole, part = step(x)
        (y.square().mean().full_tensor() + summed.sum().to_local() + whole.mean()).backward()
        seen.append([*map(local, [y, summed, whole, part]), y.placements == summed.placements, [local(w.grad) for w in weights]])
        optimizer.step()
        optimizer.zero_grad()
    return seen


@program("3 3 3 3")
def dtensor_placed_anew(run: Run) -> Any:
    """Placements, and then the mesh, are others from call to call."""
    meshes = [init_device_mesh("cpu", (run.size,), mesh_dim_names=(name,)) for name in ("one", "other")]
    step, seen = run.compile(lambda x, where: (x * 2).redistribute(placements=where).to_local()), []
    for mesh in meshes:
        for place in (Shard(0), Shard(1)):
            for x in same_batches(run)[:2]:
                seen.append(local(step(distribute_tensor(x, mesh, [place]), (Replicate(),))))
    return seen


@program("10")
def dtensor_in_two_dimensions(run: Run) -> Any:
    """A mesh of data-parallel and tensor-parallel processes."""
    mesh = init_device_mesh("cpu", (run.size // 2, 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(MLP(), mesh["tensor"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return run.train(run.compile(lambda x: model(x) + 1), model, same_batches(run))


@program("9 9")
def dtensor_lengths(run: Run) -> Any:
    """Batches of other lengths, which the number of processes need not divide."""
    model = tensor_parallel_mlp(run)
    return run.train(run.compile(model), model, [torch.cat([x, x])[: 3 + i % 4] for i, x in enumerate(same_batches(run))])


@program("5 8 6")
def dtensor_inputs_of_other_lengths(run: Run) -> Any:
    """Each rank holds another number of rows, and the program may depend on whether it is the same number."""
    mesh, seen = init_device_mesh("cpu", (run.size,)), []
    torch.manual_seed(0)
    weight = nn.Parameter(distribute_tensor(torch.randn(WIDTH, WIDTH), mesh, [Shard(1)]))
    step = run.compile(lambda x: ((x @ weight).relu(), x.full_tensor(), x.to_local() * x.shape[0]))
    for rows in (4, 6, 7, 5, 8, 9):
        x: Any = distribute_tensor(torch.randn(rows, WIDTH), mesh, [Shard(0)])
        y, whole, part = step(x)
        y.sum().full_tensor().backward()
        seen.append([y.shape, local(y), whole, part, local(weight.grad)])
    return seen


@program("7")
def dtensor_dropout(run: Run) -> Any:
    layers = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.Dropout(0.5), nn.Linear(2 * WIDTH, WIDTH))
    plan = {"0": ColwiseParallel(use_local_output=False), "2": RowwiseParallel()}
    model = parallelize_module(layers, init_device_mesh("cpu", (run.size,)), plan)
    torch.manual_seed(run.rank)
    return run.train(run.compile(model), model, same_batches(run))


@program("8 8")
def dtensor_embedding(run: Run) -> Any:
    """A table of which each rank has some rows, and sentences of other lengths."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Embedding(64, WIDTH), nn.Linear(WIDTH, WIDTH))
    plan = {"0": RowwiseParallel(input_layouts=Replicate()), "1": ColwiseParallel(output_layouts=Replicate())}
    model = parallelize_module(layers, init_device_mesh("cpu", (run.size,)), plan)
    return run.train(run.compile(model), model, [(x[0, : 4 + i % 5] * 20).long() % 64 for i, x in enumerate(same_batches(run))])


def losses(run: Run, step: Callable) -> Any:
    """Returns the losses and the gradients of a layer whose classes the ranks share."""
    torch.manual_seed(0)
    mesh = init_device_mesh("cpu", (run.size,))
    weight, compiled, seen = distribute_tensor(torch.randn(WIDTH, 12), mesh, [Shard(1)]).requires_grad_(), run.compile(step), []
    for x in same_batches(run):
        weight.grad = None
        target = distribute_tensor((x[:, 0] * 20).long() % 12, mesh, [Replicate()])
        loss = compiled(distribute_tensor(x, mesh, [Replicate()]), weight, target)
        if weight.grad is None:
            loss.backward()
        seen.append([loss.detach(), local(weight.grad)])
    return seen


@program("6")
def dtensor_parallel_loss(run: Run) -> Any:
    def step(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        with loss_parallel():
            return F.cross_entropy((x @ weight) * 2, target).full_tensor()

    return losses(run, step)


@program("6 3")
def dtensor_parallel_loss_with_a_backward_pass(run: Run) -> Any:
    def step(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        with loss_parallel():
            loss = F.cross_entropy((x @ weight) * 2, target).full_tensor()
            loss.backward()
        return loss * 2

    return losses(run, step)


@program("7")
def dtensor_implicit_replicas(run: Run) -> Any:
    scale = torch.arange(12.0)

    def step(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        with implicit_replication():
            y = x @ weight + scale
        return (y * 2).sum().full_tensor()

    return losses(run, step)


# -- collectives -----------------------------------------------------------------------------------------------------------------
@program("18")
def functional_collectives(run: Run) -> Any:
    group = dist.group.WORLD

    def step(x: Tensor) -> Any:
        y = functional.all_reduce(x * 2, "sum", group)
        z = functional.all_gather_tensor(y + 1, 0, group)
        part = functional.reduce_scatter_tensor(z, "sum", 0, group)
        sent = functional.broadcast(part.relu(), 0, group)
        functional.all_reduce(x, "max", group)
        return sent * 1, functional.all_to_all_single(x.repeat(run.size, 1), None, None, group) + 1

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("5")
def functional_gradients(run: Run) -> Any:
    weight, group = nn.Parameter(torch.ones(WIDTH)), dist.group.WORLD
    step = run.compile(lambda x: functional.all_reduce((x * weight).sum(0), "sum", group) * 2)
    seen = []
    for x in run.batches():
        step(x).sum().backward()
        seen.append(weight.grad.clone())
    return seen


@program("37")
def in_place_collectives(run: Run) -> Any:
    def step(x: Tensor) -> Any:
        y = x * 2
        dist.all_reduce(y)
        dist.all_reduce(y, op=dist.ReduceOp.MAX)
        parts = [torch.zeros_like(x) for _ in range(run.size)]
        dist.all_gather(parts, y + run.rank)
        dist.broadcast(y, 0)
        got = torch.empty(run.size * 2)
        dist.all_to_all_single(got, x[0, : run.size * 2].contiguous())
        return y + parts[0], parts, got + 1, y._version, got._version

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("14")
def gathers_into_tensors(run: Run) -> Any:
    gather = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)

    def step(x: Tensor) -> Any:
        whole, part = torch.empty(run.size * len(x), WIDTH), torch.empty_like(x)
        gather(whole, x + 1)
        scatter(part, whole * 2)
        return whole, part

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("28")
def gathers_of_deprecated_names(run: Run) -> Any:
    """Names that warn: Python shows each warning once."""

    def step(x: Tensor) -> Any:
        whole, part = torch.empty(run.size * len(x), WIDTH), torch.empty_like(x)
        dist.all_gather_into_tensor(whole, x + 1)
        dist.reduce_scatter_tensor(part, whole * 2)
        again, rest = torch.empty_like(whole), torch.empty_like(part)
        dist.distributed_c10d._all_gather_base(again, part * 2)
        dist.distributed_c10d._reduce_scatter_base(rest, again + whole)
        return whole, part, again, rest

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("12")
def collectives_on_inputs(run: Run) -> Any:
    """Writes into what the caller holds: values, versions, and a view of it."""

    def step(x: Tensor) -> Any:
        view = x[1]
        dist.all_reduce(x)
        dist.broadcast(view, run.size - 1)
        return view * 2

    step, seen = run.compile(step), []
    for x in run.batches():
        found = step(x)
        # AOTAutograd gives each input that it writes into a new version.
        seen.append((found, x, x._version if run.exact else 0))
    return seen


class Exchanged(torch.autograd.Function):
    """Adds up the gradients of all processes, as tensor-parallel layers do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.contiguous().clone()
        dist.all_reduce(grad)
        return grad


class Reduced(torch.autograd.Function):
    """Adds up the activations of all processes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


@program("5")
def tensor_parallel_layer(run: Run) -> Any:
    weight = nn.Parameter(torch.ones(WIDTH))
    step, seen = run.compile(lambda x: Reduced.apply(Exchanged.apply(x * weight) * (run.rank + 1)).relu()), []
    for x in run.batches():
        step(x).sum().backward()
        seen.append(weight.grad.clone())
    return seen


@program("4")
def collective_in_an_autograd_function(run: Run) -> Any:
    weight = nn.Parameter(torch.ones(WIDTH))
    step, seen = run.compile(lambda x: (Exchanged.apply(x * weight) * (run.rank + 1)).relu()), []
    for x in run.batches():
        step(x).sum().backward()
        seen.append(weight.grad.clone())
    return seen


@program("1 1")
def collective_of_a_gradient_tensor(run: Run) -> Any:
    """A write into a tensor with a history, which autograd does not see: it stays eager."""
    weight = nn.Parameter(torch.ones(WIDTH))

    def step(x: Tensor) -> Any:
        y = x * weight
        dist.all_reduce(y)
        return y * 3

    step, seen = run.compile(step), []
    for x in run.batches():
        found = step(x)
        found.sum().backward()
        seen.append((found.detach(), weight.grad.clone()))
    return seen


@program("1 1 1")
def not_waited_for(run: Run) -> Any:
    def step(x: Tensor) -> Any:
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x + 1
        work.wait()
        return y + z

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("6")
def questions(run: Run) -> Any:
    group = dist.group.WORLD

    def step(x: Tensor) -> Any:
        if not dist.is_initialized():
            return x
        ranks = dist.get_process_group_ranks(group)
        return x * dist.get_rank() + dist.get_world_size() + dist.get_rank(group) + dist.get_world_size(group=group) + sum(ranks) + dist.get_global_rank(group, 0)

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("13")
def groups_of_a_mesh(run: Run) -> Any:
    mesh = init_device_mesh("cpu", (run.size,))
    gather = getattr(functional, "all_gather_single", functional.all_gather_tensor)

    def step(x: Tensor) -> Any:
        y = functional.all_reduce(x * 2, "sum", mesh)
        z = gather(y, 0, (mesh, 0))
        dist.all_reduce(x, group=mesh.get_group())
        return z * mesh.size() + mesh.get_local_rank(), x * 1

    step = run.compile(step)
    return [step(x) for x in run.batches()]


@program("7 7 7 1 1 1 1")
def groups_in_turns(run: Run) -> Any:
    """One function with several groups, one of which does not contain this rank; groups that are gone."""
    all_ranks, alone = dist.new_group(list(range(run.size))), [dist.new_group([r]) for r in range(run.size)]

    def step(x: Tensor, group: Any) -> Any:
        y = x * 2
        dist.all_reduce(y, group=group)
        return y + dist.get_world_size(group)

    step, seen = run.compile(step), []
    batches = run.batches()
    for group in (all_ranks, alone[run.rank], None, all_ranks, alone[run.rank - 1], dist.group.WORLD):
        seen.append(step(batches[0], group))
    dist.destroy_process_group(all_ranks)
    try:
        seen.append(step(batches[1], all_ranks))
    except Exception as e:
        seen.append(type(e).__name__)
    seen.append(step(batches[2], alone[run.rank]))
    return seen


# -- the option check_ranks -----------------------------------------------------------------------------------------------------
@program("3 3 3")
def ranks_that_agree(run: Run) -> Any:
    model = DistributedDataParallel(Net(), bucket_cap_mb=0.001)
    return run.train(run.compile(model, check_ranks=True), model, run.batches())


def refused(step: Callable[[Tensor], Any], x: Tensor, *texts: str) -> None:
    """Checks that the first call is refused on all ranks, with these texts in the error."""
    checked = fineline.compile(step, backend="eager", options={"check_ranks": True})
    try:
        checked(x)
    except fineline.errors.RanksDiffer as e:
        assert all([text in str(e) for text in texts]), str(e)
    else:
        raise AssertionError("not refused")


@program("")
def ranks_that_differ(run: Run) -> Any:
    def communicates(x: Tensor) -> Tensor:
        y = x * 2
        if run.rank == 1:
            dist.all_reduce(y)
        return y + 1

    def prints(x: Tensor) -> Tensor:
        y = x * 2
        if run.rank == 1:
            print(end="")
        return y + 1

    def sums(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y

    x = run.batches()[0]
    refused(communicates, x, "rank 0: operator add", "rank 1: operator", "all_reduce")
    refused(prints, x, "rank 0: operator add", "rank 1: break FL411")
    refused(sums, torch.ones(2 + run.rank), "(2,)", "(3,)")
    return True


@program("")
def a_rank_that_raises(run: Run) -> Any:
    def raises(x: Tensor) -> Tensor:
        if run.rank == 1:
            raise ValueError("only here")
        return x * 2

    try:
        refused(raises, run.batches()[0], "the call raises ValueError")
    except ValueError:
        assert run.rank == 1
    return True


@program("10 1 10", makes_groups=True)
def default_group_that_is_made_anew(run: Run) -> Any:
    """The last program: it destroys the default group, and makes one in which each process is alone."""

    def step(x: Tensor) -> Any:
        if not dist.is_initialized():
            return x + 100
        y = x * 2
        dist.all_reduce(y)
        parts = functional.all_gather_tensor(y, 0, dist.group.WORLD)
        return parts * 1 + dist.get_world_size()

    step = run.compile(step)
    seen, x = [], run.batches()[0]
    seen.append(step(x))
    logging.disable()
    for _ in range(2):
        dist.destroy_process_group()
        seen.append(step(x))
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        seen += [step(x), step(x)]
    return seen
