"""Small programs over sizes that vary: six calls each, of which at most two capture, and all give what eager gives."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

from tests.oracle import t
from tests.shapes.varied import SMALL, Varied, both_ways

table = Varied()


@table.varied()
def state_of_pytorch(x):
    """A capture's own fake mode is none of it."""
    core = torch._C
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return x + len(modes), core._len_torch_dispatch_stack(), core._len_torch_function_stack(), torch.is_grad_enabled()


@table.varied_program(lambda n: (t(n, 3, 4),))
def fast_attention():
    layer = torch.nn.MultiheadAttention(4, 2, batch_first=True).eval()

    def fn(x):
        with torch.no_grad():
            return layer(x, x, x)

    return fn, layer


@table.varied()
def rows(x):
    return x.relu() * x.shape[0]


@table.varied()
def rows_by_size(x):
    return x.sin() + x.size(0) + x.numel() + len(x) + x.size()[0]


@table.varied()
def ranges(x):
    n = x.shape[0]
    return torch.arange(n), torch.arange(0, n, 2), torch.arange(n - 1, -1, -1), torch.tensor([n, 2]), torch.tensor(n)


@table.varied()
def made_anew(x):
    n = x.size(0)
    return x.new_zeros(n), x.new_full((n, n), 2.0), torch.ones(n, 2, dtype=x.dtype), torch.eye(n), torch.full((n,), float(n))


@table.varied()
def causal_mask(x):
    n = x.shape[0]
    mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
    return (x @ x.T + mask).softmax(-1)


@table.varied()
def boolean_mask(x):
    n = x.shape[0]
    keep = torch.arange(n)[None, :] <= torch.arange(n)[:, None]
    return torch.where(keep, x @ x.T, 0.0), (x @ x.T).masked_fill(~keep, -1.0)


@table.varied(lambda n: (t(n, n, 1), t(n + 1, 1, n), t(1, n)))
def broadcast(x, y, z):
    return x + y, x * z, (x + y + z).sum(0)


@table.varied(lambda n: (t(1, n, 4), t(2, 4)))
def broadcast_against_fixed(x, y):
    return x * y + y


@table.varied(lambda n: (t(1, 2, n, 4), t(2, 2, n, 4)))
def einsum(x, y):
    return torch.einsum("bqd,bkd->bqk", x, y).softmax(-1) @ y


@table.varied(lambda n: (t(1, n, 4), t(2, n + 2, 4)))
def cat_along(x, y):
    z = torch.cat([x, y, x])
    return z, z.shape[0], torch.stack([x, x], 1), torch.cat([x, torch.zeros(1, 4)])


@table.varied(lambda n: (t(1, 2 * n, 4),))
def split_in_two(x):
    a, b = x.split(x.shape[0] // 2)
    c, d = x.chunk(2)
    return a + b, c - d, torch.tensor_split(x, 2)[1]


@table.varied(lambda n: (t(1, n, 8),))
def split_the_fixed(x):
    q, k, v = x.chunk(3, -1)
    return q.sum(-1) + k.sum(-1) + v.sum(-1), x.split([2, 6], 1)


@table.varied(lambda n: (t(1, 2, n, 8),))
def heads(x):
    b, n, d = x.shape
    q = x.view(b, n, 2, d // 2).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return out.transpose(1, 2).reshape(b, n, d)


@table.varied(lambda n: (t(1, 2, 3, n, n + 1),))
def pictures(x):
    y = F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2)
    return F.interpolate(y, scale_factor=2.0), F.interpolate(y, size=x.shape[-2:], mode="bilinear"), F.adaptive_avg_pool2d(x, 1)


@table.varied()
def sizes_in_a_list(x):
    sizes = [x.shape[0], x.shape[1]]
    sizes.append(sizes[0] * 2)
    return torch.zeros(sizes[:2]) + 1, torch.ones(sizes[2]), sum(sizes), sizes


@table.varied()
def numbers_given_back(x):
    n = x.shape[0]
    return x * 2, n, n + 1, n // 2, (n, [n * 2]), {"n": n}, x.shape, x.size(0), -n, n % 3, n - 0.5, n / 2, n**2


@table.varied()
def divided(x):
    n = x.shape[0]
    q, r = divmod(n, 3)
    return x[:q], r, math.ceil(n / 2), math.floor(n / 4), math.sqrt(n), round(n / 2), int(n / 2), float(n), abs(-n)


@table.varied()
def chosen(x):
    n = x.shape[0]
    return x[: min(n, 4)], max(n, 2), min(n, 100), max(x.shape), sum(x.shape), math.prod(x.shape), x[: max(1, n - 20)]


@table.varied(lambda n: (t(1, 8 * n, 4),))
def branch_on_a_multiple(x):
    if x.shape[0] % 8 == 0:
        return x.view(-1, 8, 4).sum(1)
    return x


@table.varied()
def branch_on_a_bound(x):
    n = x.shape[0]
    if n > 2 and n != 1 and not n == 2:
        return x * n
    return x - n


@table.varied()
def conditional_expression(x):
    n = x.shape[0]
    pad = 0 if n >= 2 else 2 - n
    return F.pad(x, (0, 0, 0, pad)), (n or 3), bool(n)


@table.varied()
def fancy_indices(x):
    n = x.shape[0]
    index = torch.arange(n).flip(0)
    return x[index], x[index, index % 4], x.gather(1, (index % 4)[:, None]), x.index_select(0, index), x[None, ..., n // 2, :]


@table.varied()
def reductions(x):
    return x.mean(), x.sum(0) / x.shape[0], x.std(0), x.max(0).values, x.cumsum(0), x.sort(0).values, x.topk(2, 0).values


@table.varied()
def repeats(x):
    n = x.shape[0]
    return x.repeat(2, 1), x.expand(3, n, 4), x.repeat_interleave(2, 0), x.tile(2), x.unsqueeze(0).expand(2, -1, -1)


@table.varied(lambda n: (t(1, 4, n), t(2, n, 3)))
def products(x, y):
    return x @ y, torch.matmul(x, y).T, torch.mm(x, y) + 1, F.linear(x, y.T)


@table.varied(lambda n: (torch.arange(n) % 5, t(1, 5, 4)))
def embedding(i, table):
    return F.embedding(i, table), F.one_hot(i, 5), table[i]


@table.varied(lambda n: (t(1, n, 4), torch.arange(n) % 4))
def loss(x, y):
    return F.cross_entropy(x, y), F.nll_loss(x.log_softmax(1), y), F.mse_loss(x, x * 0.5)


@table.varied(lambda n: (t(1, n, 4, grad=True),))
def differentiated(x):
    return (x[1:] * x.shape[0]).relu().sum()


@table.varied(lambda n: ([t(1, n, 4), t(2, n, 4)], {"z": t(3, n)}))
def tensors_in_containers(xs, d):
    return xs[0] + xs[1] + d["z"][:, None]


@table.varied(lambda n: (t(1, n, 4), t(2, n, 4)))
def two_of_a_size(x, y):
    assert x.shape == y.shape
    return x + y, x.shape == y.shape, x.size(0) == y.size(0)


@table.varied(lambda n: (t(1, n, 4), t(2, n + 1, 4)))
def two_of_two_sizes(x, y):
    return x.sum(0) + y.sum(0), x.shape[0] + y.shape[0], x.shape == y.shape


@table.varied()
def sequences_with_sizes(x):
    n = x.shape[0]
    assert n is not None and [n, "a", None] == [x.size(0), "a", None]
    among = (n, "a") in [(1, "a"), (n * 2, "a")]
    return x + 1, among, [n, "b"].index("b"), (n, "q") < (n + 1, "a"), n == "n", ("a", n).count(n)


@table.varied(lambda n: (t(n, n, 4),))
def operators_that_count_in_c(x):
    n = x.shape[0]
    pooled = F.max_pool1d(x.T[None], 2), F.max_pool1d(x.T, 3, stride=1, padding=1, return_indices=True)
    spaced = torch.linspace(0, 1, n), torch.logspace(0, 1, n, 2.0, dtype=torch.float64), torch.hann_window(n)
    return pooled, spaced, torch.kron(x, torch.ones(2, 3, 1)), x.new_tensor([n, 1]), x.new_tensor(n, dtype=torch.int32)


def batches(n: int) -> tuple:
    return ([t(n, n, 3), t(n, 2 * n + 3, 3), t(n, n + 2, 3)],)


@table.varied(args=batches)
def largest_of_a_generator(xs):
    longest, shortest = max(x.shape[0] for x in xs), min((len(x) for x in xs), default=0)
    return torch.cat([F.pad(x, (0, 0, 0, longest - x.shape[0])) for x in xs]), shortest


@table.varied(args=batches)
def sizes_in_order(xs):
    lengths = [x.shape[0] for x in xs]
    lengths.sort(reverse=True)
    return xs[0] * lengths[0], sorted(lengths), sorted(xs, key=len)[1]


@table.varied()
def identity_of_a_size(x):
    n = x.shape[0]
    return x * n, n is None, [n is not v for v in (None, x, "n")]


@table.varied()
def sizes_made_by_name(x):
    shape = torch.Size([2]) + torch.Size(n for n in x.shape)
    return x.new_zeros(shape), shape, shape.numel(), torch.Size([3, 4]).numel(), torch.Size(), type(x.shape[:1])


@table.varied()
def distribution(x):
    normal = torch.distributions.Normal(x, 1.0)
    return normal.rsample((2,)).shape, normal.log_prob(x + 1), normal.entropy().sum()


# -- sizes of zero and one -------------------------------------------------------------------------------------------
@table.snippet(calls=7, args=lambda p: (t(p, SMALL[p], 4) if SMALL[p] else torch.empty(0, 4),), recompiles=(1, 2, 3))
def zero_and_one(x):
    return x * 2, x + torch.ones(4, 4)[:1], x.shape[0], x.sum(0), x.contiguous()


@table.snippet(calls=7, args=lambda p: (t(p, SMALL[p], 1) if SMALL[p] else torch.empty(0, 1), t(p, 1, 4)), recompiles=(1, 2, 3))
def zero_and_one_broadcast(x, y):
    return x + y, (x + y).is_contiguous(), x.squeeze(0).dim()


# -- modules ---------------------------------------------------------------------------------------------------------
@table.varied_program(lambda n: (t(n, n, 4),))
def linear_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))


@table.varied_program(lambda n: (t(n, n, 3, 6, 6),), tolerance=1e-5, recompiles=(1, 4))
def batch_norm_in_training():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())


@table.varied_program(lambda n: (t(n, n, 4),))
def dropout_in_training():
    return torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.1))


@table.varied_program(lambda n: (t(n, 2, n, 4),))
def recurrent():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(4, 4)

    def fn(x):
        h = torch.zeros(x.shape[0], 4)
        for i in range(2):
            h = cell(x[:, i], h)
        return h * x.shape[1]

    return fn


@table.varied_program(lambda n: (t(n, 2, n, 8),), tolerance=1e-5)
def transformer_layer():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


test_program, test_program_dynamic_from_the_start = both_ways(table)
