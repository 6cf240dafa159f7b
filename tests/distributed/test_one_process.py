"""Graphs in parts at gradient buckets, and collectives, in a process group of one."""

from __future__ import annotations

import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from functorch.compile import make_boxed_func
from torch import Tensor, fx, nn
from torch._functorch.aot_autograd import aot_module_simplified
from torch.distributed import c10d_logger
from torch.nn.parallel import DistributedDataParallel

import fineline
from fineline.distributed.graph_cuts import Cuts
from tests.distributed.programs import WIDTH, Net, Shared


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def logging_backend(log: list[str]) -> Callable[..., Any]:
    """Returns a backend whose backward passes say so when they run."""

    def compiled(gm: fx.GraphModule, examples: Any, told: str) -> Any:
        def run(*args: Any) -> Any:
            if told:
                log.append(told)
            return gm(*args)

        return make_boxed_func(run)

    return lambda gm, examples: aot_module_simplified(
        gm, examples, fw_compiler=functools.partial(compiled, told=""), bw_compiler=functools.partial(compiled, told="backward")
    )


def exchanged(log: list[str], buckets: float = 0.001, **options: Any) -> list[str]:
    """Trains for three steps; returns what happens in the last one: backward passes, and exchanges of buckets."""
    model = DistributedDataParallel(Net(4), bucket_cap_mb=buckets)

    # DistributedDataParallel compares its annotations with classes, and here they are texts.
    def hook(state, bucket):  # type: ignore[no-untyped-def]
        log.append("exchange")
        done: Any = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    model.register_comm_hook(None, hook)
    step = fineline.compile(model, backend=logging_backend(log), options=options)
    for _ in range(3):
        log.clear()
        step(torch.ones(2, WIDTH)).sum().backward()
    return log


def test_each_bucket_is_exchanged_before_the_next_backward_pass() -> None:
    assert exchanged([]) == ["backward", "exchange"] * 4


def test_a_graph_may_stay_whole() -> None:
    assert exchanged([], optimize_ddp=False) == ["backward", *["exchange"] * 4]
    assert exchanged([], buckets=25) == ["backward", "exchange"]


def cuts_of(fn: Callable[..., Any], *examples: Any) -> tuple[Cuts, list[str]]:
    """Returns the cuts of a function's graph, and the names of the nodes before which it may be cut."""
    graphs: list[fx.GraphModule] = []
    fineline.compile(fn, backend=lambda gm, given: graphs.append(gm) or gm)(*examples)
    cuts = Cuts(graphs[0], examples)
    return cuts, [n.name for n, legal in zip(cuts.nodes, cuts.legal(), strict=True) if legal]


def test_no_cut_where_memory_that_is_written_crosses() -> None:
    def writes(x: Tensor) -> Tensor:
        y = x * 2
        view = y[0]
        y.add_(1)
        z = y.sin()
        return z + view.cos().tan()

    # After `cos`, nothing reads the memory of y.
    assert cuts_of(writes, torch.ones(3, 3))[1] == ["mul", "tan", "add"]


def test_no_cut_where_the_state_differs() -> None:
    def without_gradients(x: Tensor) -> Tensor:
        y = x.sin()
        with torch.no_grad():
            z = y.cos().tan()
        return z + y

    names = cuts_of(without_gradients, torch.ones(3, requires_grad=True))[1]
    assert "tan" not in names and "cos" not in names


def test_the_search_leaves_real_tensors_alone() -> None:
    module = Shared()
    values = {name: t.clone() for name, t in module.state_dict().items()}
    x = torch.ones(2, WIDTH)
    graphs: list[tuple[fx.GraphModule, list]] = []
    fineline.compile(module, backend=lambda gm, given: graphs.append((gm, given)) or gm)(x)
    module.load_state_dict(values)
    Cuts(*graphs[0])
    assert all([torch.equal(t, values[name]) for name, t in module.state_dict().items()])


def test_parts_in_a_chain_give_what_the_whole_gives() -> None:
    def step(x: Tensor, w: Tensor) -> tuple:
        y = (x @ w).relu()
        a, b = y.split(2)
        return a.sin() @ w, b + y.mean(), 3

    x, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    graphs: list[fx.GraphModule] = []
    fineline.compile(step, backend=lambda gm, given: graphs.append(gm) or gm)(x, w)
    cuts = Cuts(graphs[0], [x, w])
    parts = cuts.parts([i for i, legal in enumerate(cuts.legal()) if legal and i])
    assert len(parts) > 2
    chained = cuts.chained(parts, [part.module for part in parts])(x, w)
    for a, b in zip(chained, graphs[0](x, w), strict=True):
        assert torch.equal(a, b)


def test_a_collective_is_kept_whose_result_nothing_uses() -> None:
    seen: list[str] = []

    def compiled(gm: fx.GraphModule, examples: Any) -> Any:
        seen.extend([str(node.target) for node in gm.graph.nodes])
        return make_boxed_func(gm.forward)

    def step(x: Tensor) -> Tensor:
        functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        return x + 1

    backend: Any = lambda gm, examples: aot_module_simplified(gm, examples, fw_compiler=compiled, inference_compiler=compiled)  # noqa: E731
    fineline.compile(step, backend=backend)(torch.ones(3))
    assert "_c10d_functional.all_reduce.default" in seen and "_c10d_functional.wait_tensor.default" in seen


def test_a_wrapper_with_the_name_of_a_collective_is_the_users() -> None:
    calls = []

    @functools.wraps(dist.all_reduce)
    def all_reduce(tensor: Tensor) -> None:
        calls.append(1)
        dist.all_reduce(tensor)

    def step(x: Tensor) -> Tensor:
        y = x * 2
        all_reduce(y)
        return y + 1

    compiled = fineline.compile(step, backend="eager")
    for n in (1, 2, 3):
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 3.0)) and len(calls) == n


def test_a_group_that_is_gone_is_an_error_as_in_eager_code() -> None:
    def step(x: Tensor) -> Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y

    compiled = fineline.compile(step, backend="eager")
    compiled(torch.ones(3))
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="Default process group has not been initialized"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("case", ["not contiguous", "async_op=True", "AVG", "requires a gradient"])
def test_what_has_no_functional_form_breaks_the_graph(case: str) -> None:
    weight = nn.Parameter(torch.ones(4, 4))

    def step(x: Tensor) -> Tensor:
        y = x * (weight if case == "requires a gradient" else 2)
        if case == "async_op=True":
            dist.all_reduce(y, async_op=True).wait()
        else:
            dist.broadcast(y.t(), 0) if case == "not contiguous" else dist.all_reduce(y, *([dist.ReduceOp.AVG] if case == "AVG" else []))
        return y + 1

    results = []
    for run in (step, fineline.compile(step, backend="eager")):
        try:
            results.append(run(torch.ones(4, 4)).detach().tolist())
        except (RuntimeError, ValueError) as e:
            results.append(type(e))
    assert results[0] == results[1]
    events = fineline.report(run).events
    assert any([event.id == "FL411" and case in event.reason for event in events if event.kind == "break"])


DEPRECATED = ("all_gather_into_tensor", "_all_gather_base", "reduce_scatter_tensor", "_reduce_scatter_base")


@pytest.mark.usefixtures("shown_warnings")
@pytest.mark.parametrize("action", ["default", "always"])
@pytest.mark.parametrize("name", DEPRECATED)
def test_deprecated_collectives_warn_as_in_eager_code(name: str, action: Any) -> None:
    """In one graph, unless Python shows the warning at each call."""
    collective: Any = getattr(dist.distributed_c10d, name)

    def step(x: Tensor) -> Tensor:
        y = x * 2
        out = torch.empty_like(y)
        collective(out, y)
        return out + 1

    compiled = fineline.compile(step, backend="eager")
    seen = []
    for run in (step, compiled):
        for namespace in (globals(), vars(c10d_logger)):
            namespace.pop("__warningregistry__", None)
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()) as err:
            warnings.simplefilter(action)
            seen.append([(run(torch.ones(3) * k).tolist(), err.getvalue()) for k in range(3)])
    assert seen[0] == seen[1] and name in seen[0][0][1]
    report = fineline.report(compiled)
    assert (len(report.graphs), {event.id for event in report.breaks}) == ((1, set()) if action == "default" else (2, {"FL411"}))


class Failing(Net):
    def forward(self, x: Tensor) -> Tensor:
        if x.shape[0] == 3:
            raise ValueError("three")
        assert DistributedDataParallel._active_ddp_module.module is self
        return super().forward(x)


def test_the_active_module_is_none_after_an_error() -> None:
    compiled = fineline.compile(DistributedDataParallel(Failing()), backend="eager")
    for rows in (2, 3, 2, 3, 4):
        if rows == 3:
            with pytest.raises(ValueError, match="three"):
                compiled(torch.ones(rows, WIDTH))
        else:
            compiled(torch.ones(rows, WIDTH))
        assert DistributedDataParallel._active_ddp_module is None
    assert fineline.report(compiled).graphs
