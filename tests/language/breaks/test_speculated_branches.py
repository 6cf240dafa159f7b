"""Branches that are taken for granted behind writes, which the program takes back where they turn out otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.oracle import Program, Table, check, t

table = Table()
D = torch.distributions


def signed(k: int) -> tuple[torch.Tensor]:
    return ((t(k).abs() + 1) * (-1.0 if k in (2, 3) else 1.0),)


def now_and_then(k: int) -> tuple[torch.Tensor]:
    x = t(k)
    return (x.masked_fill(x > 0.5, float("nan")) if k in (1, 3) else x,)


@table.program(calls=5, args=now_and_then, max_graphs=1)
def an_encoder() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.3))

    def fn(x: torch.Tensor) -> Any:
        y = model(x)
        q = D.Normal(y, y.exp())
        z = q.rsample()
        return z, (q.log_prob(z) - D.Normal(torch.zeros_like(y), 1).log_prob(z)).sum()

    return fn, model


@table.program(calls=5, args=now_and_then, recompiles={1}, max_graphs=1)
def an_encoder_that_is_handled() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    log: list[Any] = []

    def fn(x: torch.Tensor) -> Any:
        log.append("begin")
        try:
            return D.Normal(model(x), 1).rsample()
        except ValueError as error:
            log.append(str(error)[:40])
            return model(x.nan_to_num())
        finally:
            log.append("end")

    return fn, (model, log)


@table.program(calls=5, args=signed, max_graphs=1)
def a_write_in_between() -> Any:
    total, seen = torch.zeros(3, 4), torch.zeros(1, dtype=torch.long)

    def fn(x: torch.Tensor) -> Any:
        seen.add_(1)
        if (x < -4).any():
            raise KeyError("far below")
        total.add_(x)
        if (x < 0).any():
            raise ValueError("below")
        total.mul_(2)
        return total * 2, seen + 1

    return fn, (total, seen)


# Compilers are not shown graphs that write into memory of which several inputs are parts.
@table.program(calls=5, args=signed, min_graphs=0)
def parts_of_which_some_overlap() -> Any:
    base = torch.zeros(3, 4, 4)
    part, column = base[1:2, 0], base[:, :, 3]

    def fn(x: torch.Tensor) -> Any:
        part[0] = x[0]
        column.add_(1)
        if (x < 0).any():
            raise ValueError("below")
        return base * 2, part + 1

    return fn, (base, part, column)


@table.program(calls=5, args=signed, max_graphs=1)
def parts_of_a_tensor() -> Any:
    base = torch.zeros(3, 4, 4)
    part, column = base[0, 0:1], base[1:, 1:3, 3]

    def fn(x: torch.Tensor) -> Any:
        part[0] = x[0]
        column.add_(1)
        if (x < 0).any():
            raise ValueError("below")
        return part + 1

    return fn, (base, part, column)


@table.program(calls=5, args=signed, max_graphs=1)
def parameters_without_gradients() -> Any:
    weight = nn.Parameter(torch.ones(4, 4))

    def fn(x: torch.Tensor) -> Any:
        with torch.no_grad():
            weight.mul_(0.5)
        weight.data.clamp_(-1, 1)
        if (x < 0).any():
            raise ValueError("below")
        return x @ weight

    return fn, weight


@table.program(calls=5, args=signed, breaks=True, grad=True)
def a_history_before() -> Any:
    def fn(x: torch.Tensor) -> Any:
        total = torch.zeros(3, 4)
        return inner(x, total), total

    total = torch.zeros(3, 4)

    def inner(x: torch.Tensor, mine: torch.Tensor) -> Any:
        total.copy_(x * 2)
        mine.copy_(x)
        if (x < 0).any():
            raise ValueError("below")
        return total * 2

    return fn, total


@table.program(calls=5, args=signed, breaks=True, grad=True)
def a_history_behind() -> Any:
    total, seen = torch.zeros(3, 4), torch.zeros(1)

    def fn(x: torch.Tensor) -> Any:
        seen.add_(1)
        if (x < 0).any():
            raise ValueError("below")
        total.copy_(x * 2)
        if (x > 1000).any():
            raise ValueError("above")
        return total * 2

    return fn, (total, seen)


@table.program(calls=4, args=signed, breaks=True)
def more_than_is_kept() -> Any:
    total, seen = torch.zeros(2**15), torch.zeros(1)

    def fn(x: torch.Tensor) -> Any:
        seen.add_(1)
        if (x < 0).any():
            raise ValueError("below")
        total.add_(x.sum())
        if (x > 1000).any():
            raise ValueError("above")
        return total * seen

    return fn, (total, seen)


@table.program(calls=5, args=signed, breaks=True)
def what_is_checked_is_written() -> Any:
    wrong, seen = torch.zeros((), dtype=torch.bool), torch.zeros(1)

    def fn(x: torch.Tensor) -> Any:
        seen.add_(1)
        wrong.copy_((x < 0).any())
        if wrong:
            raise ValueError("below")
        wrong.fill_(True)
        return x + seen

    return fn, (wrong, seen)


@table.snippet(calls=5, args=lambda k: (*signed(k), *signed(k)) if k % 2 else signed(k) * 2, max_graphs=2, recompiles={1})
def arguments_that_may_be_one(x, y):
    x.add_(1)
    if (y < 0).any():
        raise ValueError("below")
    return x * y


def sharing(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    base = t(k, 4, 4)
    return base[:2], base[1:3] if k != 1 else t(0, 2, 4)


@table.snippet(
    calls=5, args=sharing, recompiles={1, 2}, min_graphs=0, twins=("captured", "reference", "borders", "fake", "limit1", "counted")
)
def arguments_that_share_memory(x, y):
    x.add_(1)
    if (y < -2).any():
        raise ValueError("below")
    y.mul_(2)
    return x * y


@table.program(calls=5, args=signed, breaks=True)
def between_two_breaks() -> Any:
    seen = torch.zeros(1)

    def fn(x: torch.Tensor) -> Any:
        x = x + 1
        print("before")
        seen.add_(x.sum())
        if (x < 0).any():
            raise ValueError("below")
        y = x * seen
        print("behind")
        seen.add_(1)
        if (y < -9).any():
            raise ValueError("far below")
        return y + seen

    return fn, seen


@table.program(calls=5, args=now_and_then, max_graphs=1)
def hooks_of_modules_and_tensors() -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    seen = torch.zeros(1)
    model[1].register_forward_pre_hook(lambda module, args: (seen.add_(1), None)[1])

    def fn(x: torch.Tensor) -> Any:
        y = model(x)
        if torch.isnan(y).any():
            raise ValueError("no number")
        return y * 2

    return fn, (model, seen)


@table.snippet(calls=5, args=signed, max_graphs=1)
def in_inference_mode(x):
    with torch.inference_mode():
        x.add_(1)
    if (x < 0).any():
        raise ValueError("below")
    return x * 2


@table.program(calls=3, max_graphs=1)
def constants_of_a_distribution() -> Any:
    weight = nn.Parameter(torch.ones(4, 4))

    def fn(x: torch.Tensor) -> Any:
        weight.data.clamp_(-1, 1)
        return x @ weight * D.Normal(0, 1).icdf(torch.tensor(0.95))

    return fn, weight


def covariance(k: int) -> tuple[torch.Tensor, torch.Tensor]:
    a = t(k, 4, 4)
    cov = a @ a.T + torch.eye(4)
    if k == 1:
        cov[0, 1] += 5  # not symmetric
    return t(k, 4), cov if k != 3 else -cov


@table.snippet(calls=5, args=covariance, max_graphs=1)
def matrices_of_distributions(mean, cov):
    q = torch.distributions.MultivariateNormal(mean, cov)
    return q.log_prob(mean + 1), torch.distributions.Wishart(torch.tensor(7.0), cov).log_prob(cov), torch.randn(2)


@table.program(calls=5, args=covariance, max_graphs=1)
def what_a_constraint_says() -> Any:
    judge = torch.distributions.constraints.positive_definite.check
    return lambda x, cov: (judge(cov), x * 2), None


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_granted(program: Program, twin: str) -> None:
    check(program, twin)
