"""Tensors whose numbers are known, sizes that are tensors, branches that only raise, and NumPy's scalars."""

from __future__ import annotations

import inspect
import types
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.oracle import Program, Table, check, t

table = Table()


# -- numbers that follow from constants ------------------------------------------------------------------------------
@table.snippet(max_graphs=1)
def constants_are_read(x):
    n = torch.div(x.shape[0] * 4, 6, rounding_mode="trunc")
    y = x.view(n, -1) + torch.tensor([1.0, 2.0]).sum().item()
    if torch.tensor(3) > 2:
        y = y * 2
    return y.new_zeros((n + 1, 2)), y, torch.arange(n), [n.item(), int(n), n.tolist(), float(torch.full((), 2.5))]


@table.snippet(breaks=True, recompiles={1, 2})
def constant_that_is_written(x):
    n = torch.tensor(2)
    m = n.view(1)
    n += x.argmax()
    a = n.item()
    m.fill_(5)
    k = torch.zeros(2)
    k.data.add_(x.sum())
    return x * a + n.item(), k.tolist()


@table.snippet(breaks=True)
def size_read_again_after_a_write(x):
    n = (x.abs() > 9).sum() + 2
    a = x.new_zeros(n)
    n += 1
    b = x.new_zeros((n, 2))
    k = a.numel() + b.numel()
    n.data += 1
    return a, b, k, x.new_ones(n)


# Another number of large elements is another program, which serves both.
@table.snippet(breaks=True, calls=4, args=lambda k: (torch.tensor([1.0, 5.0, float(k % 2) * 7, 2.0]),), recompiles={1, 2, 3})
def one_read_serves_many_sizes(x):
    n = (x > 4).sum()
    a = x.new_zeros(n, 3)
    b = torch.arange(n) * 2
    c = x.narrow(0, 0, n)
    if [n, 3] != list(a.size()):
        return None
    return a.view(3, n), b, c, n


@table.snippet(breaks=True)
def size_behind_a_border(x):
    n = torch.tensor(3)
    k = int(x.sum() * 0) + 1
    return x.new_zeros(n) + k, n.item()


# -- branches of which one arm raises ----------------------------------------------------------------------------------
def signed(k: int) -> tuple[torch.Tensor]:
    return ((t(0).abs() + 1) * (-1.0 if k in (2, 3) else 1.0),)


@table.snippet(calls=5, args=signed, max_graphs=1, grad=True)
def checked_branch(x):
    noise = torch.randn(4)
    y = x * noise
    if not (x > 0).all():
        raise ValueError(f"not positive: {x.sum():.3f} {noise}")
    if torch.isnan(y).any():
        raise AssertionError
    return y.log1p()


@table.program(calls=5, args=signed, breaks=True, recompiles={2})
def checked_branch_behind_a_border() -> Any:
    log: list[Any] = []

    def fn(x: torch.Tensor) -> Any:
        log.append("start")
        k = x.abs().sum().item() > 0
        y = x + k
        try:
            if (y < -1).any():
                raise ValueError("low")
        except ValueError as error:
            return str(error), y * 2
        log.append("end")
        return y

    return fn, log


@table.program(calls=5, args=signed, breaks=True)
def checked_branch_after_a_write() -> Any:
    total = torch.zeros(3, 4)

    def fn(x: torch.Tensor) -> Any:
        total.add_(x)
        if (x < 0).any():
            raise ValueError("below")
        return total * 2

    return fn, total


@table.snippet(calls=5, args=signed)
def checked_branch_in_a_mode(x):
    with torch.no_grad():
        if (x < 0).any():
            raise ValueError("below")
        return x * 2


@table.snippet(max_graphs=2, breaks=True, backward=False)
def distributions(x):
    q = torch.distributions.Normal(x, x.exp())
    return q.log_prob(q.rsample()), torch.distributions.Categorical(logits=x).entropy()


# -- NumPy's scalars -----------------------------------------------------------------------------------------------------
class Holder:
    rate = np.float64(1.5)
    steps = np.int32(3)
    not_a_number = np.float32("nan")


@table.snippet(max_graphs=1)
def numpy_scalars(x):
    k = np.sqrt(np.prod(x.shape)) / 2
    return x * k + np.float32(2) * x, np.int64(3) + x, x.view(np.int64(2), -1), x[np.int64(1)], float(k), k.item(), int(np.ceil(2.5))


@table.program(change={1: lambda h: setattr(Holder, "rate", np.float64(2.5)), 2: lambda h: setattr(Holder, "rate", 2.5)}, recompiles={1, 2})
def numpy_scalars_guarded() -> Any:
    Holder.rate = np.float64(1.5)
    return lambda x: (x * Holder.rate + Holder.steps, str(Holder.rate), str(Holder.not_a_number)), None


@table.snippet(breaks=True)
def numpy_scalar_made_a_tensor(x):
    return x + torch.tensor(np.float64(2)), torch.as_tensor(np.int16(2)), np.zeros(2), np.sqrt([1, 4])


# -- one compiled graph for many places ------------------------------------------------------------------------------
@table.snippet(max_graphs=1)
def same_stretch_in_a_loop(x):
    sums = []
    for _ in range(4):
        x = (x * 2).relu()
        sums.append(x.sum().item())
    return x, sums


@table.snippet(max_graphs=4, breaks=True)
def alike_but_not_the_same(x):
    a = (x * 2).sum()
    a.item()
    b = (x * 3).sum()
    b.item()
    c = (x[0] * 3).sum()
    c.item()
    with torch.no_grad():
        d = (x * 3).sum()
    return a, b, c, d


# -- what else models do ------------------------------------------------------------------------------------------------
@table.snippet(max_graphs=1)
def abs_of_tensors(x):
    return abs(x) + abs(-3)


@torch.jit.script
def gated(x):  # type: ignore[no-untyped-def]
    return x * torch.sigmoid(1.7 * x)


@table.snippet(max_graphs=1)
def scripted_function(x):
    return gated(x) + 1


@table.program(breaks=True)
def scripted_module() -> Any:
    inner = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    return lambda x: inner(x * 2) + 1


@table.snippet(max_graphs=1)
def embedding_writes_nothing(x):
    w = x * 1
    return F.embedding(torch.tensor([0, 2]), x) + F.embedding(torch.tensor([1, 2]), w)


def bound(a: Any, b: int = 2, *c: Any, d: int = 4, **e: Any) -> None: ...


@table.program(max_graphs=2, change={2: lambda shown: shown.update(a=7)}, recompiles={2}, must_recompile=True)
def mapping_proxy_from_outside() -> Any:
    signature, shown = inspect.signature(bound), {"a": 1, "b": 2}
    proxy = types.MappingProxyType(shown)

    def fn(x: torch.Tensor) -> Any:
        names = list(signature.bind(x, 3, 4, d=5, z=6).arguments)
        return x * proxy["a"], names, list(proxy.items()), "b" in proxy, len(proxy)

    return fn, shown


@table.snippet(breaks=True, calls=4)
def an_observer_writes_what_it_has_seen(x):
    low, high = torch.tensor(1.0), torch.tensor(1.0)
    scale, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    on = torch.ones(1, dtype=torch.int32)
    y = torch.fused_moving_avg_obs_fake_quant(x, on, on, low, high, scale, zero, 1.0, 0, 255, 0)
    return y, low.item(), high.item(), float(scale[0])


@table.snippet(breaks=True, calls=4)
def statistics_of_a_batch_norm_written_without_a_name_that_says_so(x):
    mean, var = torch.zeros(1), torch.ones(1)
    y, _, _ = torch._native_batch_norm_legit(x[:, None], None, None, mean, var, True, 1.0, 1e-5)
    return y, mean.item(), float(var)


@table.snippet(breaks=True, calls=4, twins=("captured", "reference", "borders", "limit1", "fake", "dynamic", "counted"))  # AOTAutograd refuses it
def running_maxima_into_given_tensors(x):
    values, indices = torch.zeros(3, 4), torch.zeros(3, 4, dtype=torch.int64)
    torch._cummax_helper(x, values, indices, 1)
    return values, float(values[0, 3]), indices.sum().item()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_known_values(program: Program, twin: str) -> None:
    check(program, twin)
