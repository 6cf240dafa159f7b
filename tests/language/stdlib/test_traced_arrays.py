"""NumPy's arrays that share memory with tensors: its functions on them are operators of the graph, or break it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
# The program makes the array of a result by an operator that the user's code calls elsewhere.
TWINS = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "aot", "aot_fake", "aot_dynamic")
BROKEN = tuple([twin for twin in TWINS if twin != "strict"])
ROUNDED = 1e-6


def plain(k: int) -> torch.Tensor:
    return t(k).detach()


def one(k: int) -> tuple:
    return (plain(k),)


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def norms(x):
    a = x.numpy() * 2 + 1
    return torch.from_numpy(a / np.linalg.norm(a)), x


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def arrays_given_back(x):
    a = x.numpy()
    b = np.sin(a)
    return a, b, a.T, b[1:], a is x.numpy(), a.mean(), a.sum(axis=0), b.max(), [np.concatenate([a, b])], {"view": a[:, None]}


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def normalized(x):
    a = x.numpy()
    b = (a - a.mean(axis=0)) / (a.std(axis=0) + 1e-5)
    c = np.where(b > 0, b, np.float32(0)) + np.clip(a, -1, 1)
    return torch.from_numpy(np.stack([b, c])).sum(), torch.as_tensor(c, dtype=torch.float64), torch.tensor(b.T)


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def written_through_arrays(x):
    a = x.numpy()
    a += 1
    a[1:] = 5
    a[:, 0] *= 2
    np.add(a, a, out=a)
    y = x * 2
    a[0, 0] = 7
    return y, x.sum(), a


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def written_through_tensors(x):
    a = x.numpy()
    before = a.copy()
    x.add_(1)
    y = torch.from_numpy(a)
    y[1:].mul_(2)
    return a, before, y, x, a[1:] - before[1:], np.asarray(x)


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def views(x):
    y = x * 2
    a = y.numpy()
    b, c, d = a.T, a.reshape(-1), a.ravel()
    b[0] = 1
    e = a.flatten()
    c[-1] = 9
    f = a[::2, 1:]
    f[...] = -1
    return y, a, b, c, d, e, f, a.swapaxes(0, 1), np.squeeze(a[:1]), np.expand_dims(a, 0), np.split(a, 2, axis=1)


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def overlapping_writes(x):
    a = x.numpy()
    a[1:] += a[:-1]
    a[:, 1:] = a[:, :-1]
    return a, x


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def items_are_copies(x):
    a = (x * 2).numpy()
    first, row = a[0, 0], a[0]
    a[0] = 5
    return first, row, a[..., 0], first + 1, type(first), isinstance(first, np.floating), isinstance(a, np.ndarray), type(a)


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def scalars(x):
    a = x.numpy()
    m = a.mean()
    n = a.sum() * 2.5
    m += 1
    return m, n, m + n, a * m, 2 - n, n.dtype, m.shape, np.float64(2) * m, m > n, -m, abs(n), np.sqrt(abs(m)), a.max() - np.float64(1)


@table.snippet(max_graphs=1, args=lambda k: (torch.arange(6) + k, torch.tensor([True, False, True, True, False, k % 2 > 0])), twins=TWINS, tolerance=ROUNDED)
def ints_and_bools(x, m):
    a, b = x.numpy(), m.numpy()
    return a + 1, a * 2.5, a / 2, a & 3, ~b, a * b, b.sum(), a.sum(), a.mean(), b & (a > 2), a == 3, np.sqrt(a), a + np.int8(1), a.astype(np.float32), -a, b | True


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def sizes(x):
    a = x.numpy()
    n, m = a.shape
    return len(a), a.shape, a.size, a.ndim, a.dtype, a.nbytes, a.itemsize, a.reshape(m, n), np.zeros_like(a), x * n, a * n, a[: n - 1]


@table.snippet(max_graphs=2, recompiles=(1,), args=lambda k: (torch.arange(8.0 + 2 * k).reshape(2, -1),), calls=4, twins=TWINS, tolerance=ROUNDED)
def sizes_that_vary(x):
    a = x.numpy()
    return (a - a.mean()) / a.shape[1], a.T, len(a.T), torch.from_numpy(a).sum(), np.concatenate([a, a], axis=1)


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def beside_constants(x):
    a = x.numpy()
    grid = np.arange(4, dtype=np.float32)
    y = a + grid
    grid[0] = 9
    return y, a * grid, a[np.array([1, 0])], np.where(grid > 1, a, 0)


@table.snippet(max_graphs=1, args=lambda k: (t(k), np.arange(12.0, dtype=np.float32).reshape(3, 4) + k), backward=False, twins=TWINS)
def arrays_from_outside(x, a):
    b = a * 2
    a += 1
    return x + torch.from_numpy(b), a, b, a[0], torch.from_numpy(a), x * 2


def turned(k: int) -> tuple:
    return t(k), np.arange(12.0).reshape(3, 4)[:: 1 - 2 * (k % 2)]


@table.snippet(min_graphs=0, calls=4, args=turned, breaks=True, recompiles=(1, 2), backward=False, twins=BROKEN)
def arrays_that_go_backward(x, a):
    return x + torch.tensor(a * 2), a[::-1], a


@table.snippet(min_graphs=0, args=one, breaks=True, recompiles=(1,), twins=BROKEN)
def backward_views(x):
    a = x.numpy()
    b = a[::-1] * 2
    return b, np.flip(a, 0), x + 1


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=(1, 2), twins=BROKEN, tolerance=ROUNDED)
def others_break(x):
    a = (x * 2).numpy()
    b = np.interp(a, [0, 1], [2, 3])
    c = np.argsort(a)
    return b, c, np.unique(a).size, a.tolist(), a + 1, str(a.dtype), a.flags.writeable, a.strides, f"{a.round(2)}"


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(5), calls=5, twins=BROKEN, tolerance=ROUNDED)
def numbers_that_are_read(x):
    a = x.numpy()
    y = a * 2 if a.sum() > 0 else a - 1
    return y, float(a.mean()) > 100, bool((a > 100).any()), {a[0, 0]: 1} == {}, a[0, 0] in (1, 2)


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=(1, 2, 3), calls=4, twins=BROKEN, tolerance=ROUNDED)
def across_breaks(x):
    a = x.numpy()
    b, m = a * 2, a.mean()
    fineline.graph_break()
    b += 1
    a[0] = m
    fineline.graph_break()
    return a, b, x, b - a, m


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=(1, 2, 3), calls=4, twins=BROKEN)
def a_tensor_of_a_part(x):
    a = x.numpy()
    y = torch.from_numpy(a[1:])
    y.mul_(2)
    return y, y.storage_offset(), a, x, torch.as_tensor(a[1:], dtype=torch.float64), torch.tensor(a[:, 1:])


class Holder:
    def __init__(self) -> None:
        self.a: Any = None
        self.seen: list[Any] = []


@table.program(args=one, twins=TWINS)
def kept_by_objects():
    holder = Holder()

    def fn(x):
        holder.a = x.numpy() + 1
        holder.seen.append(holder.a[0])
        holder.seen.append(holder.a.max())
        holder.a[1] = 3
        return x * 2

    return fn, holder


@table.program(args=one, breaks=True, min_graphs=0, recompiles=(1, 2), calls=4, twins=BROKEN)
def given_to_eager_code():
    seen: list[Any] = []

    @fineline.disable
    def note(a, m):
        a[0] = 2
        seen.append((a, m))
        return a * m

    def fn(x):
        a = x.numpy()
        b = note(a, a.max())
        return a + b, x

    return fn, seen


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (t(k), plain(k)), recompiles=range(4), calls=4, twins=BROKEN, tolerance=ROUNDED)
def refused_by_torch(x, y):
    said = []
    makers = (
        lambda: (x * 1).numpy(), lambda: np.asarray(x * 1), lambda: torch.conj(y + 1j).numpy(), lambda: y.bfloat16().numpy(),
        lambda: y.to_sparse().numpy(), lambda: y.numpy(force=True).sum(), lambda: x.numpy(force=True), lambda: y.half().numpy() * 2,
    )  # fmt: skip
    for make in makers:
        try:
            said.append(make())
        except (RuntimeError, TypeError) as e:
            said.append((type(e), str(e)[:60]))
    return said


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(4), calls=4, twins=BROKEN)
def refused_by_numpy(x):
    a = x.numpy()
    b = torch.ones(4, dtype=torch.int64).numpy()
    said = []
    makers = (
        lambda: a.reshape(5), lambda: a @ a, lambda: b.__iadd__(0.5), lambda: np.add(a, 1, out=b), lambda: a[7], lambda: a + np.ones(7),
        lambda: a.foo, lambda: len(a[0, 0]), lambda: hash(a), lambda: a[0, 0].foo, lambda: torch.from_numpy(a[0, 0]), lambda: a & 1, lambda: -(a > 0),
    )  # fmt: skip
    for make in makers:
        try:
            said.append(make())
        except (ValueError, TypeError, IndexError, AttributeError) as e:
            said.append((type(e), str(e)[:60]))
    return said, a * 2


@table.snippet(args=lambda k: (plain(k), plain(k + 1).requires_grad_()), max_graphs=1, twins=TWINS, tolerance=ROUNDED)
def beside_gradients(x, w):
    a = x.numpy() * 2
    y = torch.from_numpy(a) * w
    b = w.detach().numpy() + a
    return y.sum(), y, torch.from_numpy(b) * w


@table.snippet(args=lambda k: (plain(k), plain(k + 1).requires_grad_()), max_graphs=1, twins=TWINS, tolerance=ROUNDED)
def arrays_of_parameters(x, w):
    a = w.detach().numpy()
    y = (w * 2).detach().numpy()
    return a, y, a[0], (w * x).sum(), torch.from_numpy(a), y.max()


@table.snippet(args=lambda k: (plain(k).byte(), k), recompiles=(1, 2), calls=4, breaks=True, min_graphs=0, twins=BROKEN)
def ints_that_vary(x, k):
    a = x.numpy()
    try:
        return a + k * 100
    except OverflowError as e:
        return type(e)


@table.snippet(args=lambda k: (plain(k), plain(k + 1).requires_grad_()), max_graphs=1, twins=("captured", "fake", "borders", "reference"))
def written_after_it_is_saved(x, w):
    y = x * 2
    z = (y.detach() * w).sum()
    a = x.numpy()
    a += 1
    return z, y, x


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(3), twins=BROKEN)
def random_numbers(x):
    a = x.numpy() + np.random.rand(*x.shape).astype(np.float32)
    return a, np.random.randint(5), random.random(), torch.from_numpy(np.random.permutation(4))


@table.snippet(max_graphs=1, args=lambda k: (torch.zeros(0, 3), torch.tensor(2.0 + k), torch.ones(1, 1)), twins=TWINS)
def empty_and_without_dimensions(x, y, z):
    a, b, c = x.numpy(), y.numpy(), z.numpy()
    return a * 2, a.sum(), b + 1, b * a, c[0], c.sum(), b[()], b[...], a.T, np.concatenate([a, a]), c * b, a.any()


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def statistics_of_arrays(x):
    a = x.numpy()
    middle = [np.percentile(a, 30, axis=0), np.quantile(a.astype(np.float64), [0.1, 0.9], axis=1), np.average(a, axis=1), np.ptp(a)]
    return middle, np.gradient(a, axis=0), np.count_nonzero(a > 0, axis=0), np.argsort(a, axis=1, kind="stable")


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def rearranged_arrays(x):
    a = x.numpy()
    order = np.argsort(a, axis=0, kind="stable")
    pairs = np.meshgrid(a[0], a[:, 0]), np.append(a, a[:1], axis=0), np.fft.fftshift(a), np.resize(a, (2, 5))
    return pairs, np.take_along_axis(a, order, axis=0), np.linalg.multi_dot([a, a.T, a]), np.convolve(np.array([1, 2]), order[0]), a.conj()


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(6), calls=4, twins=BROKEN, tolerance=ROUNDED)
def arguments_that_numpy_refuses(x):
    a = x.numpy()
    results = [np.average(a[:, :2], axis=1, weights=np.abs(a[0, :2]) + 1), np.argsort(a[:, 0])]
    for attempt in (lambda: np.average(a, weights=a - a), lambda: np.percentile(a, 101), lambda: np.quantile(a, a[0] * 9 + 2)):
        try:
            results.append(attempt())
        except (ValueError, ZeroDivisionError) as e:
            results.append(str(e))
    return results


@table.snippet(max_graphs=4, args=lambda k: (plain(k), np.arange(3.0 + k), [0] * (k % 2 + 1)), recompiles=range(4), calls=4, twins=TWINS)
def made_while_a_transform_is_open(x, a, times):
    largest = (a // 2).max()
    for _ in times:
        y, _ = torch.func.vjp(torch.sin, x)
    return largest, y.detach()


@table.snippet(max_graphs=1, args=lambda k: (plain(k).t(), torch.ones(4, 1).expand(4, 3), plain(k)[:, ::2]), twins=TWINS, tolerance=ROUNDED)
def other_strides(x, y, z):
    a, b, c = x.numpy(), y.numpy(), z.numpy()
    return a * 2, a + b, b.sum(axis=0), c - 1, a.copy(), a.ravel(), a.reshape(-1), np.exp(a), c.T * 2, np.ones_like(a), np.sort(a, axis=0), np.cumsum(c, axis=1)


@table.program(args=one, twins=TWINS, options={"numpy": "eager"}, breaks=True, min_graphs=0, recompiles=(1, 2))
def left_to_numpy():
    return lambda x: torch.from_numpy(x.numpy() * 2) + 1


@table.program(calls=4, args=one, change={2: lambda held: held.update(a=np.ones(4))}, recompiles=(2,), max_graphs=2, twins=TWINS)
def an_array_in_a_dict():
    held: dict[str, Any] = {"a": np.ones(4, dtype=np.float32)}
    return lambda x: (x.numpy() + held["a"], held["a"].sum()), held


@table.snippet(args=lambda k: (plain(k), k), recompiles=(1,), max_graphs=2, calls=5, twins=TWINS)
def numbers_that_vary(x, k):
    a = x.numpy()
    return a * k + k, a + (k + 1), a[:2] - k


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(6), calls=4, twins=BROKEN, tolerance=ROUNDED)
def gone_through(x):
    a = x.numpy()
    (b, c, d), (e, *rest) = a, a[0]
    return [row * 2 for row in a], list(a[0]), tuple(a[1]), b, c + d, e, rest, [p + q for p, q in zip(a, a)], dict(enumerate(a[0])), sum([b, c]), max(a[0])


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(6), calls=4, twins=BROKEN, tolerance=ROUNDED)
def read_in_other_ways(x):
    a = x.numpy()
    s, n = a.mean(), a.argmax()
    texts = [str(type(s)), repr(n), f"{n:03d}", str(n), "%d" % n]
    return (
        texts, int(s) * 0, complex(n), n.item(), round(s, 1), divmod(n, 2), pow(n, 2), hash(n), bool(n), [0, 1] * n, "ab" * n, n in {1, 2}, {n: 1},
        list(range(n)), np.sqrt(n), hasattr(s, "is_integer"), hasattr(a, "is_integer"), hasattr(n, "sort"), s.is_integer(), n.bit_count(), s.real, a.real,
    )  # fmt: skip


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(6), calls=4, twins=BROKEN, tolerance=ROUNDED)
def used_by_tensors(x):
    a = x.numpy()
    s, n = a.mean(), a.argmax() % 3 + 1
    y = x * s + torch.full((2, 1), s).sum()
    z = torch.zeros(n, 2), x[n % 2], x[:n], x.sum(int(n) % 2), torch.tensor([s, 1.0]), torch.where(x > s, x, s), torch.tensor(s), x.add(1, alpha=s)
    return y, z, x + a, a + x, torch.add(x, torch.as_tensor(a)), x.reshape(a.shape[::-1]), torch.zeros(a.shape), x > a, torch.from_numpy(a) @ x.T


@table.snippet(breaks=True, min_graphs=0, args=one, recompiles=range(6), calls=4, twins=BROKEN)
def changed_in_other_ways(x):
    import copy

    y = x * 1
    a = y.numpy()
    b, c = copy.copy(a), copy.deepcopy([a])
    a.fill(3)
    d = a > 2
    a[d] = 1
    e = a.view(np.int32)
    a.shape = (4, 3)
    a.sort()
    np.copyto(a, 5)
    a.flags.writeable = False
    return a, b, c, d, e, y


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def written_by_masks(x):
    y = x * 1
    a = y.numpy()
    a[a > 0] = 2
    b = np.where(a < 0, 0, a)
    b[b == 2] = b[0, 0]
    return y, a, b


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (plain(k), torch.tensor([0, 1, 2 + 5 * (k % 2)])), recompiles=range(6), calls=4, twins=BROKEN)
def indices(x, i):
    a, b = x.numpy(), i.numpy()
    try:
        return a[b], a[b, 0], np.take(a, b, axis=0), a[:, np.array([0, 3])], a[np.array([[0], [2]]), np.array([1, 2])]
    except IndexError as e:
        return str(e), a


ERRORS = {1: lambda state: state.update(errors="raise"), 3: lambda state: state.update(errors="ignore")}


@table.program(calls=4, args=one, change=ERRORS, breaks=True, min_graphs=0, recompiles=range(1, 4), twins=BROKEN)
def errors_that_are_raised():
    state = {"errors": "ignore"}

    def fn(x):
        a = x.numpy()
        try:
            with np.errstate(all=state["errors"]):
                return a / np.zeros_like(a)
        except FloatingPointError as e:
            return str(e)

    return fn, state


@table.snippet(args=one, breaks=True, min_graphs=0, recompiles=range(3), twins=BROKEN)
def in_inference_mode(x):
    with torch.inference_mode():
        a = (x * 2).numpy()
        b = x.numpy()
        b += 1
        y = torch.from_numpy(a * 2)
    return a, b, y.is_inference(), y.clone(), x


@table.snippet(args=one, breaks=True, min_graphs=0, recompiles=range(3), twins=("captured", "fake", "borders", "reference", "dynamic"))
def under_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        a = x.numpy() @ x.numpy().T
        b = np.dot(x.numpy(), x.numpy().T) + 1
    return a.dtype, a, b


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def rows_of_arrays(x):
    a = x.numpy().copy()
    for i, row in enumerate(a):
        row *= i
        a[0] += 1
    first, second, third = a
    return a, first + second, [r.sum() for r in a[:, 1:]], [len(r) for r in a], [*zip(a, a, strict=True)][0][1] + third


@table.program(max_graphs=1, args=lambda k: (np.arange(12.0).reshape(3, 4) + k,), twins=TWINS, tolerance=ROUNDED)
def rows_of_arrays_from_outside():
    def fn(a):
        return [np.tanh(r) for r in a], [int(k) for k in np.arange(3)], [r + a[0] for r in np.eye(4)]

    return fn


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def numbers_of_rows(x):
    a = x.numpy()
    return [n + 1 for n in a[0]], [n for n in a[1]], [r for r in a]


@table.snippet(max_graphs=1, args=one, twins=TWINS, tolerance=ROUNDED)
def lists_as_indices(x):
    a = x.numpy()
    turned = a[:, [1, 0, 2]]
    turned[0, 0] = 9
    found = a[[0, 2]], turned, a[[2, 1], [0, 3]], a[[0, 1], 1:3], a[[-1]], a[[[0, 1], [1, 0]]], a[1, [0, 1]]
    return [(b, b.shape, b.sum()) for b in found], turned.T + 1


def _longer(held: Any) -> None:
    held["at"].append(0)


def _other(held: Any) -> None:
    held["at"][0] = 2


@table.program(args=one, twins=TWINS, calls=4, recompiles={1, 2}, change={1: _longer, 2: _other})
def a_list_that_changes_as_an_index():
    held = {"at": [0, 1]}

    def fn(x):
        return x.numpy()[held["at"]] * 2

    return fn, held


# -- arrays of sizes that vary -----------------------------------------------------------------------------------------
ANY_SIZE: dict[str, Any] = {"args": lambda k: (t(k, (3, 5, 7, 1, 0, 4)[k], 4),), "calls": 6, "recompiles": (1, 3, 4), "twins": TWINS, "tolerance": ROUNDED}


@table.snippet(max_graphs=4, **ANY_SIZE)
def made_of_a_shape(x):
    a = x.numpy()
    b = np.zeros(a.shape) + a
    c = np.empty(a.shape, a.dtype)
    c[...] = 2
    made = b, c, np.ones(a.shape[:1], dtype=np.int16), np.full(a.shape, 2.5, np.float32), np.full((2, len(a)), True), np.full(a.shape, 7)
    return torch.from_numpy(b.T).sum(), [(m, m.dtype, m.shape) for m in made], c + 1


@table.snippet(max_graphs=4, **ANY_SIZE)
def made_of_a_size(x):
    a = x.numpy()
    n = x.shape[0]
    made = np.zeros(len(a)), np.ones(a.size, dtype="f4"), np.zeros(n, int), np.zeros([n, 2]), np.eye(n), np.eye(n, a.shape[1], dtype=bool), np.identity(n + 1)
    return x + torch.from_numpy(np.zeros(len(a)))[:, None], made, [m.dtype for m in made], np.full(a.shape[0] * 2, a[:, :1].sum()), np.full((2, 4), n)


@table.snippet(max_graphs=4, **ANY_SIZE)
def made_of_a_range(x):
    n = x.numpy().shape[0]
    made = np.arange(n), np.arange(n * 2), np.arange(1, n), np.arange(n, -2, -2), np.arange(0.0, n)
    made += np.arange(2, 3 * n, 2, dtype=np.float32), np.arange(n, dtype="i4")
    return x * torch.from_numpy(np.arange(n))[:, None], made, [m.dtype for m in made], np.arange(n)[:, None] * np.arange(4)


@table.snippet(max_graphs=4, **ANY_SIZE)
def made_without_another_array(x):
    return x + torch.from_numpy(np.zeros(x.shape[0], np.float32))[:, None]


@table.snippet(max_graphs=2, args=lambda k: (t(k), np.ones((5 - k, 4))), calls=6, recompiles=(1,), twins=TWINS)
def sizes_of_an_array_that_are_read_again(x, a):
    y = x * a.shape[0]
    return y, a.shape, a.shape[:1], [a.shape]


@table.snippet(max_graphs=2, args=lambda k: (t(k), 3 + k), calls=4, recompiles=(1,), twins=TWINS)
def made_of_a_number(x, n):
    return x[0, 0] * torch.from_numpy(np.arange(n)), np.ones((n, 2)).sum()


@table.snippet(max_graphs=1, args=one, twins=TWINS)
def made_without_items(x):
    a, b = np.empty((3, 4), np.float32), np.empty(2)
    a[...], b[:] = 3, 4
    return torch.from_numpy(a) + x, b


@table.snippet(breaks=True, args=lambda k: (t(k, (5, 3, 7, 2, 4)[k], 4),), calls=5, recompiles=range(5), twins=BROKEN)
def made_of_a_negative_size(x):
    a = x.numpy()
    try:
        return np.zeros(len(a) - 4), np.ones((2, a.shape[0] - 3)), np.arange(len(a) - 4)
    except ValueError as e:
        return str(e), np.arange(len(a) - 4)


@table.snippet(breaks=True, args=lambda k: (t(k, 3 + k, 4),), calls=4, recompiles=range(4), min_graphs=0, twins=BROKEN)
def made_of_no_size(x):
    a = x.numpy()
    found = []
    for make in np.zeros, np.ones, np.empty, np.eye, lambda n: np.full((n, 2), 1):
        try:
            found.append(make(a.shape[0] / 2))
        except TypeError as e:
            found.append(str(e))
    return found, x * 2


@table.snippet(breaks=True, args=lambda k: (t(k, 3 + k, 4),), calls=4, recompiles=range(4), twins=BROKEN)
def made_otherwise(x):
    a = x.numpy()
    n = len(a)
    made = np.zeros(a.shape, order="F"), np.eye(n, k=1), np.arange(0, n, 0.3), np.full(n, 2.5, int), np.full(a.shape, [1.0, 2, 3, 4]), np.zeros(n, np.uint32)
    return [(m, m.dtype, m.strides) for m in made]


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_traced_arrays(program: Program, twin: str) -> None:
    check(program, twin)
