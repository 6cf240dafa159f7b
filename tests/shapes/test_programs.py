"""Small programs over sizes and numbers that vary: six calls each, of which at most two capture, and all give what eager gives."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.oracle import Program, Table, check, t

N = (5, 7, 12, 4, 30, 8)
table = Table()


def varied(args: Callable[[int], tuple] | None = None, **marks: Any) -> Any:
    """A program that is called with each of ``N``; unless told, with a tensor of that many rows. Only the second call captures again."""
    given = args or (lambda n: (t(n, n, 4),))
    return table.snippet(calls=len(N), args=lambda place: given(N[place]), **{"recompiles": (1,), **marks})


def varied_program(args: Callable[[int], tuple] | None = None, **marks: Any) -> Any:
    given = args or (lambda n: (t(n, n, 4),))
    return table.program(calls=len(N), args=lambda place: given(N[place]), **{"recompiles": (1,), **marks})


def growing(n: int) -> tuple:
    return (t(n, n, 4), n)


# -- sizes -----------------------------------------------------------------------------------------------------------
@varied()
def rows(x):
    return x.relu() * x.shape[0]


@varied()
def rows_by_size(x):
    return x.sin() + x.size(0) + x.numel() + len(x) + x.size()[0]


@varied()
def slice_with_half(x):
    n = x.shape[0]
    return x[: n // 2].sin(), x[n // 2 :].cos(), x[1 : n - 1], x[-2:]


@varied()
def views(x):
    n = x.shape[0]
    return x.view(n * 4), x.view(-1), x.reshape(n, 2, 2), x.unflatten(1, (2, 2)), x.flatten()


# PyTorch decides by the size, whether such a view keeps the strides in order.
@varied(recompiles=range(1, 6))
def view_to_a_fixed_size(x):
    return x.view(2, -1), x.reshape(4, x.shape[0])


@varied()
def view_like_another(x):
    return x.sin().view(x.size()), x.cos().view(x.shape), torch.zeros(x.shape), x.new_empty(x.shape[::-1]).shape


@varied()
def ranges(x):
    n = x.shape[0]
    return torch.arange(n), torch.arange(0, n, 2), torch.arange(n - 1, -1, -1), torch.tensor([n, 2]), torch.tensor(n)


@varied()
def made_anew(x):
    n = x.size(0)
    return x.new_zeros(n), x.new_full((n, n), 2.0), torch.ones(n, 2, dtype=x.dtype), torch.eye(n), torch.full((n,), float(n))


@varied()
def causal_mask(x):
    n = x.shape[0]
    mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
    return (x @ x.T + mask).softmax(-1)


@varied()
def boolean_mask(x):
    n = x.shape[0]
    keep = torch.arange(n)[None, :] <= torch.arange(n)[:, None]
    return torch.where(keep, x @ x.T, 0.0), (x @ x.T).masked_fill(~keep, -1.0)


@varied(lambda n: (t(n, n, 1), t(n + 1, 1, n), t(1, n)))
def broadcast(x, y, z):
    return x + y, x * z, (x + y + z).sum(0)


@varied(lambda n: (t(1, n, 4), t(2, 4)))
def broadcast_against_fixed(x, y):
    return x * y + y


@varied(lambda n: (t(1, 2, n, 4), t(2, 2, n, 4)))
def einsum(x, y):
    return torch.einsum("bqd,bkd->bqk", x, y).softmax(-1) @ y


@varied(lambda n: (t(1, n, 4), t(2, n + 2, 4)))
def cat_along(x, y):
    z = torch.cat([x, y, x])
    return z, z.shape[0], torch.stack([x, x], 1), torch.cat([x, torch.zeros(1, 4)])


@varied(lambda n: (t(1, 2 * n, 4),))
def split_in_two(x):
    a, b = x.split(x.shape[0] // 2)
    c, d = x.chunk(2)
    return a + b, c - d, torch.tensor_split(x, 2)[1]


@varied(lambda n: (t(1, n, 8),))
def split_the_fixed(x):
    q, k, v = x.chunk(3, -1)
    return q.sum(-1) + k.sum(-1) + v.sum(-1), x.split([2, 6], 1)


@varied(lambda n: (t(1, 2, n, 8),))
def heads(x):
    b, n, d = x.shape
    q = x.view(b, n, 2, d // 2).transpose(1, 2)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return out.transpose(1, 2).reshape(b, n, d)


@varied(lambda n: (t(1, 2, 3, n, n + 1),))
def pictures(x):
    y = F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2)
    return F.interpolate(y, scale_factor=2.0), F.interpolate(y, size=x.shape[-2:], mode="bilinear"), F.adaptive_avg_pool2d(x, 1)


@varied()
def sizes_in_a_list(x):
    sizes = [x.shape[0], x.shape[1]]
    sizes.append(sizes[0] * 2)
    return torch.zeros(sizes[:2]) + 1, torch.ones(sizes[2]), sum(sizes), sizes


@varied()
def numbers_given_back(x):
    n = x.shape[0]
    return x * 2, n, n + 1, n // 2, (n, [n * 2]), {"n": n}, x.shape, x.size(0), -n, n % 3, n - 0.5, n / 2, n**2


@varied()
def divided(x):
    n = x.shape[0]
    q, r = divmod(n, 3)
    return x[:q], r, math.ceil(n / 2), math.floor(n / 4), math.sqrt(n), round(n / 2), int(n / 2), float(n), abs(-n)


@varied()
def chosen(x):
    n = x.shape[0]
    return x[: min(n, 4)], max(n, 2), min(n, 100), max(x.shape), sum(x.shape), math.prod(x.shape), x[: max(1, n - 20)]


@varied(lambda n: (t(1, 8 * n, 4),))
def branch_on_a_multiple(x):
    if x.shape[0] % 8 == 0:
        return x.view(-1, 8, 4).sum(1)
    return x


@varied()
def branch_on_a_bound(x):
    n = x.shape[0]
    if n > 2 and n != 1 and not n == 2:
        return x * n
    return x - n


@varied()
def conditional_expression(x):
    n = x.shape[0]
    pad = 0 if n >= 2 else 2 - n
    return F.pad(x, (0, 0, 0, pad)), (n or 3), bool(n)


@varied(lambda n: (t(n, n, 4).T,))
def transposed(x):
    return x.contiguous(), x.stride(), x.is_contiguous(), x * 2, x.t().view(-1)


@varied(lambda n: (t(n, n, 4)[::2],))
def strided(x):
    return x + 1, x.reshape(-1), x.is_contiguous(), x.T


@varied(lambda n: (t(n, 2, n + 3, 4)[:, 1 : n + 1],))
def view_given(x):
    return x.sum(1), x.storage_offset(), x.shape[1]


@varied()
def in_place(x):
    x.add_(1)
    x[x.shape[0] // 2 :].mul_(2)
    x[0] = 7.0
    return x.sum()


@varied()
def in_place_through_a_view(x):
    v = x[1:]
    v += x.shape[0]
    return v, x


@varied()
def outputs_that_alias(x):
    return x, x[1:], x.view(-1), x.T, x


@varied()
def fancy_indices(x):
    n = x.shape[0]
    index = torch.arange(n).flip(0)
    return x[index], x[index, index % 4], x.gather(1, (index % 4)[:, None]), x.index_select(0, index), x[None, ..., n // 2, :]


@varied()
def reductions(x):
    return x.mean(), x.sum(0) / x.shape[0], x.std(0), x.max(0).values, x.cumsum(0), x.sort(0).values, x.topk(2, 0).values


@varied()
def repeats(x):
    n = x.shape[0]
    return x.repeat(2, 1), x.expand(3, n, 4), x.repeat_interleave(2, 0), x.tile(2), x.unsqueeze(0).expand(2, -1, -1)


@varied(lambda n: (t(1, 4, n), t(2, n, 3)))
def products(x, y):
    return x @ y, torch.matmul(x, y).T, torch.mm(x, y) + 1, F.linear(x, y.T)


@varied(lambda n: (torch.arange(n) % 5, t(1, 5, 4)))
def embedding(i, table):
    return F.embedding(i, table), F.one_hot(i, 5), table[i]


@varied(lambda n: (t(1, n, 4), torch.arange(n) % 4))
def loss(x, y):
    return F.cross_entropy(x, y), F.nll_loss(x.log_softmax(1), y), F.mse_loss(x, x * 0.5)


@varied(lambda n: (t(1, n, 4, grad=True),))
def differentiated(x):
    return (x[1:] * x.shape[0]).relu().sum()


@varied(lambda n: ([t(1, n, 4), t(2, n, 4)], {"z": t(3, n)}))
def tensors_in_containers(xs, d):
    return xs[0] + xs[1] + d["z"][:, None]


@varied(lambda n: (t(1, n, 4), t(2, n, 4)))
def two_of_a_size(x, y):
    assert x.shape == y.shape
    return x + y, x.shape == y.shape, x.size(0) == y.size(0)


@varied(lambda n: (t(1, n, 4), t(2, n + 1, 4)))
def two_of_two_sizes(x, y):
    return x.sum(0) + y.sum(0), x.shape[0] + y.shape[0], x.shape == y.shape


# -- numbers ---------------------------------------------------------------------------------------------------------
@varied(growing)
def int_argument(x, n):
    return x * n + n // 2, torch.zeros(n), x[: n - 1]


@table.snippet(calls=6, args=lambda p: (t(p),), kwargs=lambda p: {"k": N[p]}, recompiles=(1,))
def int_keyword(x, *, k=2):
    return x + k, k * 2


@table.snippet(calls=6, args=lambda p: (t(p), 0.5 + N[p] / 8), recompiles=(1,))
def float_argument(x, lr):
    return x - lr * x, x * lr, x + lr, x / lr, lr - x, lr * 2


@table.snippet(calls=6, args=lambda p: (t(p), 0.5 + N[p] / 8), recompiles=(1,))
def float_arithmetic(x, lr):
    decay = 1 - lr * 0.01
    return x * decay + lr**2, x.mul_(decay), torch.add(x, x, alpha=lr), decay


@table.snippet(calls=6, args=lambda p: (t(p), N[p], 0.5 + N[p] / 8), recompiles=(1,))
def int_and_float(x, n, lr):
    return x * (n * lr), n * lr, n + lr, lr / n


@table.snippet(calls=6, args=lambda p: (t(p), 0.5 + N[p] / 8), recompiles=(1,))
def float_compared(x, lr):
    if lr > 0.1:
        return x * lr
    return x


@table.snippet(calls=6, args=lambda p: (t(p), 0.5 + N[p] / 8), recompiles=(1,))
def float_through_operators(x, s):
    return F.leaky_relu(x, s), F.elu(x, s), torch.full((2,), s), x.clamp(max=s), torch.lerp(x, x * 2, s)


@varied_program(lambda n: (t(n),), recompiles=(1, 2))
def counter_attribute():
    class Trainer:
        step = 3

    trainer = Trainer()

    def fn(x):
        trainer.step += 1
        return x * trainer.step

    return fn, trainer


@varied_program(lambda n: (t(n),))
def learning_rate_attribute():
    class Optimizer:
        def __init__(self):
            self.lr = 0.1
            self.steps = 4

        def update(self, x):
            self.steps += 1
            self.lr = self.lr * 0.5
            return x - self.lr * x, self.lr / self.steps

    optimizer = Optimizer()
    return optimizer.update, optimizer


COUNT = [4]


@varied_program(lambda n: (t(n),))
def counter_in_a_list():
    count = [4]

    def fn(x):
        count[0] += 1
        return x + count[0]

    return fn, count


def sized(reads: Callable[..., Any], recompiles: Any = (1,)) -> Callable[[], Any]:
    """A program that reads a list of numbers, one of which is another at each call."""

    def make() -> Any:
        sizes = [3, 4, 2]
        return lambda x: reads(x, sizes), sizes

    make.__name__ = reads.__name__
    changes = {p: lambda sizes, p=p: sizes.__setitem__(1, 4 + p) for p in range(6)}
    table.program(calls=6, args=lambda p: (t(p),), change=changes, recompiles=recompiles)(make)
    return make


def fixing(reads: Callable[..., Any]) -> Callable[[], Any]:
    return sized(reads, range(1, 6))


@sized
def a_list_that_is_looped_over(x, sizes):
    made = []
    for n in sizes:
        x = x + n
        made.append(torch.ones(n))
    return x, made, [n * 2 for n in sizes], len(sizes)


@sized
def a_list_beside_another(x, sizes):
    for i, (n, k) in enumerate(zip(sizes, [1.5, 2, 3])):
        x = x * n + i * k
    return x, list(map(lambda n: n + 1, sizes))


@sized
def a_list_unpacked_and_summed(x, sizes):
    a, b, c = sizes
    return x * a + b - c, sum(sizes) + max(sizes), min(sizes), torch.zeros(b, c)


@sized
def an_iterator_over_a_list(x, sizes):
    numbers = iter(sizes)
    first = next(numbers)
    fineline.graph_break()
    return x * first * 2, numbers, type(numbers), [x + n for n in numbers], next(numbers, None)


@sized
def a_list_that_is_looped_over_again(x, sizes):
    return [x + n for n in sizes], [x * n for n in sizes], sizes, sizes[1]


# Read as a whole, after a number in it has been a symbol.
@fixing
def a_list_that_is_looped_over_and_copied(x, sizes):
    return [x + n for n in sizes], [x * n for n in reversed([*sizes])], sizes


@fixing
def a_list_that_is_indexed_and_copied(x, sizes):
    return x + sizes[1], [x * n for n in [*sizes]]


@table.program(calls=6, args=lambda p: (t(p),), change={p: lambda held, p=p: held.set(4 + p) for p in range(6)}, recompiles=(1,))
def numbers_put_back():
    class Held:
        def __init__(self):
            self.attribute, self.items, self.keys = 4, [4, 0], {"n": 4}

        def set(self, n):
            self.attribute, self.items[0], self.keys["n"] = n, n, n

    held = Held()

    def fn(x):
        y = x + held.attribute + held.items[0] + held.keys["n"]
        # As it was at the capture in which they become symbols.
        held.attribute = held.items[0] = held.keys["n"] = 5
        return y

    return fn, held


@varied_program(lambda n: (t(n),))
def counter_in_a_cell():
    step = 4

    def fn(x):
        nonlocal step
        step += 1
        return x + step

    return fn


@varied_program(lambda n: (t(n),))
def counter_in_globals():
    space = {"step": 4, "torch": torch}
    exec("def fn(x):\n    global step\n    step += 1\n    return x * step\n", space)
    return space["fn"]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    length: int
    scale: float = 1.0


@varied(lambda n: (Batch(t(n, n, 4), n, n / 4),))
def dataclass_fields(batch):
    return batch.x * batch.length * batch.scale, torch.ones(batch.length)


@varied(lambda n: (Batch(t(n, n, 4), n),))
def dataclass_made(batch):
    return Batch(batch.x + 1, batch.length + batch.x.shape[0])


@table.program(calls=6, args=lambda p: (t(p), t(0, N[p], 4)), recompiles=(1,))
def key_value_cache():
    cache = {"k": torch.zeros(2, 4)}

    def fn(x, more):
        cache["k"] = torch.cat([cache["k"], more])
        return (x @ cache["k"].T).softmax(-1) @ cache["k"], cache["k"].shape[0]

    return fn, cache


@table.program(calls=6, args=lambda p: (torch.tensor([[p, p + 1]]),), recompiles=(1,))
def decoder_with_a_cache():
    class Decoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.words, self.out = torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16)
            self.past = torch.zeros(1, 3, 8)

        def forward(self, ids):
            new = self.words(ids)
            self.past = torch.cat([self.past, new.detach()], 1)
            seen = torch.arange(self.past.shape[1])[None] <= torch.arange(self.past.shape[1] - ids.shape[1], self.past.shape[1])[:, None]
            y = F.scaled_dot_product_attention(new, self.past, self.past, attn_mask=seen)
            return self.out(y)

    return Decoder()


# -- modules ---------------------------------------------------------------------------------------------------------
@varied_program(lambda n: (t(n, n, 4),))
def linear_layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.LayerNorm(8), torch.nn.Linear(8, 2))


@varied_program(lambda n: (t(n, n, 3, 6, 6),), tolerance=1e-5, recompiles=(1, 4))
def batch_norm_in_training():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())


@varied_program(lambda n: (t(n, n, 4),))
def dropout_in_training():
    return torch.nn.Sequential(torch.nn.Dropout(0.5), torch.nn.Dropout(0.1))


@varied_program(lambda n: (t(n, 2, n, 4),))
def recurrent():
    torch.manual_seed(0)
    cell = torch.nn.GRUCell(4, 4)

    def fn(x):
        h = torch.zeros(x.shape[0], 4)
        for i in range(2):
            h = cell(x[:, i], h)
        return h * x.shape[1]

    return fn


@varied_program(lambda n: (t(n, 2, n, 8),), tolerance=1e-5)
def transformer_layer():
    torch.manual_seed(0)
    return torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)


# -- graph breaks in between -----------------------------------------------------------------------------------------
def _host(x: torch.Tensor) -> float:
    return float(x.sum() * 0)


@varied(breaks=True)
def break_in_between(x):
    n = x.shape[0]
    y = x * n
    if y.sum().item() > 1e9:
        y = y + 1
    return y[: n // 2] * y.shape[0], n


@varied(growing, breaks=True)
def break_with_a_number_alive(x, n):
    y = x * n
    zero = y.abs().sum().item() > -1
    return y[: n - 1] + n, zero


@varied(breaks=True)
def sizes_that_data_decides(x):
    y = x[(x[:, 0] < 1e9).nonzero()[:, 0]] * 2
    z = y[(y[:, 1] < 1e9).nonzero()[:, 0]].sin()
    return z[(z[:, 2] < 1e9).nonzero()[:, 0]] + 1


@varied(breaks=True)
def sizes_that_data_decides_in_a_loop(x):
    for i in range(3):
        x = x[(x[:, 0] < 1e9).nonzero()[:, 0]].sin() + i
    return x


@varied(breaks=True)
def growing_between_breaks(x):
    for _ in range(3):
        x = torch.cat([x, x[:1] * 2])
        torch._dynamo.graph_break()
    return x * 2


# Two inputs share memory, and the graph writes into that of a third.
@varied(lambda n: (t(n, n, 4), *[base[k:n] for base in [t(1, 40, 4)] for k in (0, 2)]), breaks=True)
def views_beside_a_write(x, a, b):
    y = x.clone()
    torch._dynamo.graph_break()
    y.add_(a[0].sum() + b[0].sum())
    return y * 2


# Behind a break that not every call meets, the place is the same.
@varied(lambda n: (t(n, n, 4), n in (12, 30)), breaks=True, recompiles=(1, 2))
def one_break_more(x, more):
    if more:
        torch._dynamo.graph_break()
    y = x[(x[:, 0] < 1e9).nonzero()[:, 0]] * 2
    return y.sum(0), (y < 1e9).nonzero()


@varied(lambda n: (torch.arange(4.0 * n).view(n, 4),), breaks=True)
def whole_numbers_behind_a_break(x):
    n = int(x.sum().item())
    m = round(n / 3)
    return x * n + m, torch.zeros(n % 7 + 2), n // 2, f"{type(n)}"


# Read at six values, within one branch.
@varied(lambda n: (torch.arange(4.0 * n).view(n, 4),), breaks=True)
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


# -- sizes in tensors of one number ------------------------------------------------------------------------------------
# Tensors wrap around where Python's numbers go on.
@varied(recompiles=range(1, 6))
def whole_numbers_too_large_for_a_tensor(x):
    n = torch.tensor(x.shape[0]) * 4611686018427387904
    return (n * 2).item(), x + 1 if n + n > 0 else x - 1, torch.tensor(-x.shape[0]).sub(1).item()


@varied(recompiles=range(1, 6))
def sizes_beside_truths(x):
    n = x.shape[0]
    return x * max(n, True), min(True, n), n + True, n == True, n > False, n * False  # noqa: E712


@varied()
def sizes_through_tensors(x):
    half = torch.div(x.shape[0] * 4, 2, rounding_mode="trunc")
    less = torch.div(x.size(0), 2, rounding_mode="floor") - 1
    n = torch.tensor(x.shape[0])
    same = list(x.size()) == [n, 4]
    return x.view(half, 2), x.new_zeros(less + 1), n.item() + 1, int(less), same, "big" if n > 3 else "small"


@varied(breaks=True, recompiles=range(1, 6))
def sizes_written_into_tensors(x):
    n = torch.tensor(x.shape[0])
    n.add_(1)
    return x.new_zeros(n), int(n)


# -- numbers in what is read -------------------------------------------------------------------------------------------
@varied(lambda n: (t(1, 4), ((n, 3), 0.5 * n)))
def numbers_in_tuples(x, sizes):
    (a, b), c = sizes
    return x * a * b + c, sizes, [sizes[0]], x.new_zeros(sizes[0]), len(sizes)


@varied(lambda n: (t(1, 4), (n, 7)))
def the_tuple_itself(x, size):
    held = {"size": size}
    return x * size[0], held["size"] is size, size == (6, 7), 9 in size, size, held


@varied_program(lambda n: (t(n),))
def one_key_of_a_dict():
    state = {"step": 100, "other": 200}

    def run(x):
        return x * state.get("step") + state.get("none", 1) + state.setdefault("step", 0)

    def fn(x):
        state["other"] += 1
        state["step"] += 1
        return run(x)

    return fn


@varied()
def sequences_with_sizes(x):
    n = x.shape[0]
    assert n is not None and [n, "a", None] == [x.size(0), "a", None]
    among = (n, "a") in [(1, "a"), (n * 2, "a")]
    return x + 1, among, [n, "b"].index("b"), (n, "q") < (n + 1, "a"), n == "n", ("a", n).count(n)


@varied(growing)
def operators_as_functions(x, n):
    return operator.mul(x, n), operator.sub(n, x), functools.reduce(operator.mul, [x, n, 2]), sum([x, n])


@varied(lambda n: (t(n, n, 4),))
def operators_that_count_in_c(x):
    n = x.shape[0]
    pooled = F.max_pool1d(x.T[None], 2), F.max_pool1d(x.T, 3, stride=1, padding=1, return_indices=True)
    spaced = torch.linspace(0, 1, n), torch.logspace(0, 1, n, 2.0, dtype=torch.float64), torch.hann_window(n)
    return pooled, spaced, torch.kron(x, torch.ones(2, 3, 1)), x.new_tensor([n, 1]), x.new_tensor(n, dtype=torch.int32)


# -- programs that are compiled for each size, and are right ---------------------------------------------------------
@varied(recompiles=range(1, 6))
def loop_over_the_size(x):
    total = x[0] * 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


@varied(recompiles=range(1, 6))
def comprehension_over_rows(x):
    return sum([row * 2 for row in x]), list(x.unbind(0))


@varied(recompiles=range(1, 6))
def text_of_the_size(x):
    n = x.shape[0]
    return x * 2, f"{n} rows", str(n), repr(n), f"{n:>4}", "%d" % n, "{}".format(n), str(x.shape), repr([n]), f"{x.shape}"


@varied(recompiles=range(1, 6))
def dict_keyed_by_the_size(x):
    table = {5: "five", 7: "seven"}
    cache = {x.shape[0]: x + 1}
    return cache, table.get(x.shape[0]), x.shape[0] in (5, 12), {x.shape[0]}, hash(x.shape[0])


@varied(recompiles=range(1, 6))
def list_times_the_size(x):
    return x * 2, [0] * x.shape[0], "a" * x.shape[0], list(range(x.shape[0])), (1, 2, 3, 4, 5, 6)[: x.shape[0]]


@varied(recompiles=range(1, 6))
def kind_of_the_size(x):
    n = x.shape[0]
    return x * n, isinstance(n, int), type(n) is int, type(n), isinstance(n, (str, int)), n.bit_length(), hash(n), type(n).__name__


@varied(recompiles=range(1, 6))
def branch_both_ways(x):
    return x + 1 if x.shape[0] % 2 == 0 else x - 1


@varied(recompiles=range(1, 6))
def indexed_by_the_size(x):
    names = list(range(40))
    return x * names[x.shape[0]], itertools.islice, [names[x.shape[0]]]


# -- sizes of zero and one -------------------------------------------------------------------------------------------
SMALL = (4, 1, 0, 6, 1, 0, 9)


@table.snippet(calls=7, args=lambda p: (t(p, SMALL[p], 4) if SMALL[p] else torch.empty(0, 4),), recompiles=(1, 2, 3))
def zero_and_one(x):
    return x * 2, x + torch.ones(4, 4)[:1], x.shape[0], x.sum(0), x.contiguous()


@table.snippet(calls=7, args=lambda p: (t(p, SMALL[p], 1) if SMALL[p] else torch.empty(0, 1), t(p, 1, 4)), recompiles=(1, 2, 3))
def zero_and_one_broadcast(x, y):
    return x + y, (x + y).is_contiguous(), x.squeeze(0).dim()


@table.snippet(calls=7, args=lambda p: (t(p), SMALL[p]), recompiles=(1, 2, 3))
def zero_and_one_as_numbers(x, n):
    return x * n, n + 1, torch.ones(n)


# -- sizes that outlive the call, and sizes among others --------------------------------------------------------------
@varied_program()
def module_that_notes_sizes():
    class Noting(torch.nn.Module):
        rows = 0

        def forward(self, x):
            self.rows, self.last = x.shape[0], x.shape
            self.__dict__.get("total", 0)
            return x * self.rows

    net = Noting()
    return net, net


@varied_program()
def dict_that_is_asked_for_another_key():
    notes = {"rows": 0, "scale": 2}

    def fn(x):
        notes["rows"] = x.shape[0]
        return x * notes.get("scale", 1) + notes.get("bias", 1)

    return fn, notes


def batches(n: int) -> tuple:
    return ([t(n, n, 3), t(n, 2 * n + 3, 3), t(n, n + 2, 3)],)


@varied(args=batches)
def largest_of_a_generator(xs):
    longest, shortest = max(x.shape[0] for x in xs), min((len(x) for x in xs), default=0)
    return torch.cat([F.pad(x, (0, 0, 0, longest - x.shape[0])) for x in xs]), shortest


@varied(args=batches)
def sizes_in_order(xs):
    lengths = [x.shape[0] for x in xs]
    lengths.sort(reverse=True)
    return xs[0] * lengths[0], sorted(lengths), sorted(xs, key=len)[1]


def two_views(n: int) -> tuple:
    pair = t(n, n, 2)
    return t(n + 1, n, 4), pair[:, 0], pair[:, 1]


@varied(args=two_views)
def write_beside_memory_that_two_share(x, a, b):
    x.mul_(2)
    return x * a.unsqueeze(1) + b.unsqueeze(1)


@varied()
def identity_of_a_size(x):
    n = x.shape[0]
    return x * n, n is None, [n is not v for v in (None, x, "n")]


@varied()
def sizes_made_by_name(x):
    shape = torch.Size([2]) + torch.Size(n for n in x.shape)
    return x.new_zeros(shape), shape, shape.numel(), torch.Size([3, 4]).numel(), torch.Size(), type(x.shape[:1])


@varied()
def distribution(x):
    normal = torch.distributions.Normal(x, 1.0)
    return normal.rsample((2,)).shape, normal.log_prob(x + 1), normal.entropy().sum()


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


PARAMS = [pytest.param(p, id=p.name) for p in table.programs]


@pytest.mark.parametrize("program", PARAMS)
def test_program(program: Program) -> None:
    check(program, "captured")


@pytest.mark.parametrize("program", PARAMS)
def test_program_dynamic_from_the_start(program: Program) -> None:
    check(dataclasses.replace(program, recompiles=frozenset(range(1, len(program.steps)))), "dynamic")
