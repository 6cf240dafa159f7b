"""Small programs whose sizes and numbers live on behind a graph break, or lie in a tensor."""

from __future__ import annotations

import math

import torch

import fineline
from tests.oracle import t
from tests.shapes.varied import Varied, both_ways, growing

table = Varied()


def _host(x: torch.Tensor) -> float:
    return float(x.sum() * 0)


@table.varied(breaks=True)
def break_in_between(x):
    n = x.shape[0]
    y = x * n
    if y.sum().item() > 1e9:
        y = y + 1
    return y[: n // 2] * y.shape[0], n


@table.varied(growing, breaks=True)
def break_with_a_number_alive(x, n):
    y = x * n
    zero = y.abs().sum().item() > -1
    return y[: n - 1] + n, zero


@table.varied(breaks=True)
def sizes_that_data_decides(x):
    y = x[(x[:, 0] < 1e9).nonzero()[:, 0]] * 2
    z = y[(y[:, 1] < 1e9).nonzero()[:, 0]].sin()
    return z[(z[:, 2] < 1e9).nonzero()[:, 0]] + 1


@table.varied(breaks=True)
def sizes_that_data_decides_in_a_loop(x):
    for i in range(3):
        x = x[(x[:, 0] < 1e9).nonzero()[:, 0]].sin() + i
    return x


@table.varied(breaks=True)
def growing_between_breaks(x):
    for _ in range(3):
        x = torch.cat([x, x[:1] * 2])
        torch._dynamo.graph_break()
    return x * 2


# Two inputs share memory, and the graph writes into that of a third.
@table.varied(lambda n: (t(n, n, 4), *[base[k:n] for base in [t(1, 40, 4)] for k in (0, 2)]), breaks=True)
def views_beside_a_write(x, a, b):
    y = x.clone()
    torch._dynamo.graph_break()
    y.add_(a[0].sum() + b[0].sum())
    return y * 2


# Behind a break that not every call meets, the place is the same.
@table.varied(lambda n: (t(n, n, 4), n in (12, 30)), breaks=True, recompiles=(1, 2))
def one_break_more(x, more):
    if more:
        torch._dynamo.graph_break()
    y = x[(x[:, 0] < 1e9).nonzero()[:, 0]] * 2
    return y.sum(0), (y < 1e9).nonzero()


@table.varied(lambda n: (torch.arange(4.0 * n).view(n, 4),), breaks=True)
def whole_numbers_behind_a_break(x):
    n = int(x.sum().item())
    m = round(n / 3)
    return x * n + m, torch.zeros(n % 7 + 2), n // 2, f"{type(n)}"


# Read at six values, within one branch.
@table.varied(lambda n: (torch.arange(4.0 * n).view(n, 4),), breaks=True)
def branch_on_what_was_read(x):
    n = int(x[-1, 0].item())
    return x.sin() + 1 if n > 4 else x.cos()


FAR = (3.5, 7.25, float("inf"), 1e300, float("nan"), -2.5)


@table.snippet(calls=len(FAR), args=lambda p: (t(p), FAR[p]), recompiles=range(1, len(FAR)))
def whole_numbers_of_any_float(x, f):
    y = x * 2
    try:
        n = int(f)
    except (OverflowError, ValueError) as e:
        return y, str(e)
    return y * (n % 5), n, math.floor(f), math.ceil(f)


# -- sizes in tensors of one number ----------------------------------------------------------------------------------
# Tensors wrap around where Python's numbers go on.
@table.varied(recompiles=range(1, 6))
def whole_numbers_too_large_for_a_tensor(x):
    n = torch.tensor(x.shape[0]) * 4611686018427387904
    return (n * 2).item(), x + 1 if n + n > 0 else x - 1, torch.tensor(-x.shape[0]).sub(1).item()


@table.varied(recompiles=range(1, 6))
def sizes_beside_truths(x):
    n = x.shape[0]
    return x * max(n, True), min(True, n), n + True, n == True, n > False, n * False  # noqa: E712


@table.varied()
def sizes_through_tensors(x):
    half = torch.div(x.shape[0] * 4, 2, rounding_mode="trunc")
    less = torch.div(x.size(0), 2, rounding_mode="floor") - 1
    n = torch.tensor(x.shape[0])
    same = list(x.size()) == [n, 4]
    return x.view(half, 2), x.new_zeros(less + 1), n.item() + 1, int(less), same, "big" if n > 3 else "small"


@table.varied(breaks=True, recompiles=range(1, 6))
def sizes_written_into_tensors(x):
    n = torch.tensor(x.shape[0])
    n.add_(1)
    return x.new_zeros(n), int(n)


test_program, test_program_dynamic_from_the_start = both_ways(table)


def heads(x, count):
    # What follows from the code is not symbolic behind a break, though all that comes from outside is.
    y = x.view(x.shape[0], 4, -1) * 3
    for k in range(count):
        torch._dynamo.graph_break()
        y = y + k
    return y * 2, k


def test_what_is_constant_stays_so_behind_breaks() -> None:
    sizes: list = []

    def backend(gm, examples):
        sizes.append([n for e in examples for n in (e.shape if isinstance(e, torch.Tensor) else [e])])
        return gm.forward

    compiled = fineline.compile(heads, backend=backend, dynamic=True)
    for rows in (6, 9, 3):
        for ours, theirs in zip(compiled(t(rows, rows, 8), 3), heads(t(rows, rows, 8), 3), strict=True):
            assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
    assert [[type(n) is torch.SymInt for n in given] for given in sizes[1:]] == [[True, False, True]] * (len(sizes) - 1)
    assert len(sizes) == 4
