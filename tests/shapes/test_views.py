"""Small programs over views and strides of sizes that vary: slices, transposes, writes, memory that several share."""

from __future__ import annotations

import torch

from tests.oracle import t
from tests.shapes.varied import N, Varied, both_ways

table = Varied()


@table.varied()
def slice_with_half(x):
    n = x.shape[0]
    return x[: n // 2].sin(), x[n // 2 :].cos(), x[1 : n - 1], x[-2:]


@table.varied()
def views(x):
    n = x.shape[0]
    return x.view(n * 4), x.view(-1), x.reshape(n, 2, 2), x.unflatten(1, (2, 2)), x.flatten()


# PyTorch decides by the size, whether such a view keeps the strides in order.
@table.varied(recompiles=range(1, 6))
def view_to_a_fixed_size(x):
    return x.view(2, -1), x.reshape(4, x.shape[0])


@table.varied()
def view_like_another(x):
    return x.sin().view(x.size()), x.cos().view(x.shape), torch.zeros(x.shape), x.new_empty(x.shape[::-1]).shape


@table.varied(lambda n: (t(n, n, 4).T,))
def transposed(x):
    return x.contiguous(), x.stride(), x.is_contiguous(), x * 2, x.t().view(-1)


@table.varied(lambda n: (t(n, n, 4)[::2],))
def strided(x):
    return x + 1, x.reshape(-1), x.is_contiguous(), x.T


@table.varied(lambda n: (t(n, 2, n + 3, 4)[:, 1 : n + 1],))
def view_given(x):
    return x.sum(1), x.storage_offset(), x.shape[1]


@table.varied(lambda n: (t(n, 2, n + 3, 4)[:, 1 : n + 1],))
def view_given_to_an_inference_mode(x):
    with torch.inference_mode():
        return (x * 2).sum(1), x.is_inference()


@table.varied()
def in_place(x):
    x.add_(1)
    x[x.shape[0] // 2 :].mul_(2)
    x[0] = 7.0
    return x.sum()


@table.varied()
def in_place_through_a_view(x):
    v = x[1:]
    v += x.shape[0]
    return v, x


@table.varied()
def outputs_that_alias(x):
    return x, x[1:], x.view(-1), x.T, x


def two_views(n: int) -> tuple:
    pair = t(n, n, 2)
    return t(n + 1, n, 4), pair[:, 0], pair[:, 1]


@table.varied(args=two_views)
def write_beside_memory_that_two_share(x, a, b):
    x.mul_(2)
    return x * a.unsqueeze(1) + b.unsqueeze(1)


# -- strides that change ---------------------------------------------------------------------------------------------
@table.snippet(calls=6, args=lambda p: (t(p, 4, N[p]).T if p % 2 else t(p, N[p], 4),), recompiles=(1, 2))
def order_of_strides(x):
    return x.is_contiguous(), x.contiguous().view(-1), x + 1


@table.snippet(calls=6, args=lambda p: (t(p, 3, N[p] + 1)[:, :4],), recompiles=(1,))
def stride_alone(x):
    return x + 1, x.reshape(-1), x.stride(), x.sum(0), x.T


@table.snippet(calls=7, args=lambda p: (t(p, 3 + p, 3 + (2 * p) % 5 + 4)[:, :3],), recompiles=(1, 2))
def stride_and_size(x):
    return x * x.shape[0], x.contiguous(), x.view(-1, 3), x.is_contiguous()


test_program, test_program_dynamic_from_the_start = both_ways(table)
