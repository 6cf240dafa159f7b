"""NumPy's arrays that the code makes of constants and fills with items of the graph, and loops over the numbers of arrays."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
TWINS = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "aot", "aot_fake", "aot_dynamic")
BROKEN = tuple([twin for twin in TWINS if twin != "strict"])
ROUNDED = 1e-6


def three(k: int) -> tuple:
    return (t(k, 3).detach(),)


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def one_item(x):
    a, b = x.numpy(), np.zeros(3)
    b[0] = a[0]
    return b, float(np.zeros(3)[0])


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def in_place_operators(x):
    a = x.numpy()
    b, c, d = np.zeros(a.shape), np.ones(3) * 2, np.array([1, 2, 3])
    b += a
    np.add(a, c, out=c)
    d += a.astype(int)
    d -= 1
    d *= d
    return b * 2, c, d, d.sum()


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def item_by_item(x):
    a, b = x.numpy(), np.zeros(3)
    c = np.empty_like(b)
    for i in range(3):
        b[i] = a[i] * 2
    for i, v in enumerate(a):
        c[i] = v + b[i]
    return b.sum(), b, c, torch.from_numpy(c) + x


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def row_by_row(x):
    a, b = x.numpy(), np.zeros((3, 3), dtype=np.float32)
    for row in b:
        row[:] = a
    b[0], b[1] = a, a * 2
    b[:, 2] = b[1] + 1
    b[b > 1] = 0
    return torch.from_numpy(b) @ x, [row.sum() for row in b], [*b]


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def views_from_before_the_write(x):
    a, b = x.numpy(), np.eye(3)
    v, w, r, parts = b[1:], b.T, b.reshape(-1), [b[i : i + 1] for i in range(3)]
    b[2] = a
    v *= 2
    parts[0][0, 1] = a[1]
    w[0, 1] = 9
    return v, w, r, parts, b, np.asarray(b) is b


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=lambda k: (t(k, 3, 3).detach(),), twins=BROKEN)
def items_that_numpy_reads_late(x):
    a, b = x.numpy(), np.zeros((3, 3))
    a[:, 2] = a[1]
    np.copyto(b, a)
    b[:, 0] = b[2]
    b[0, 1:] = b[0, :-1]
    b[1:] = b[:-1]
    return a, b


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def views_of_what_has_no_name(x):
    a = x.numpy()
    b = np.zeros(6).reshape(2, 3)
    b[1] = a
    c, f = b.ravel(), np.zeros((2, 3), order="F")
    c[0] = a[2]
    f[0] = a
    return b, c, f, f.T, f.copy()


# They are no nodes of the graph.
@table.snippet(max_graphs=1, args=three, twins=TWINS)
def views_that_are_gone(x):
    a, b, total = x.numpy(), np.ones((20, 3)), 0.0
    for i in range(20):
        total += float(b[i].sum())
    kept = b[3]
    b[0] = a
    return b, total, kept


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def kept_in_containers(x):
    a, b = x.numpy(), np.arange(3.0)
    held, twice = {"b": b, b.ndim: 1}, [b, b]
    before, numbers, m = float(b.sum()), [n + 0.5 for n in b.tolist()], torch.tensor(np.array(b))
    b[1:] = a[1:]
    return held, twice, before, numbers, m, b, len(b), b.shape, b.dtype


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def other_dtypes(x):
    a = x.numpy()
    b, c, d, e = np.zeros(3, int), np.zeros(3, np.int8), np.zeros(3, bool), np.zeros(3, np.complex64)
    b[:] = a * 10
    b[0] = 2.7
    c[:] = a * 3
    c[1] += 1
    d[:] = a
    e[1:] = a[1:]
    return b, c, d, e


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def other_ways_to_write(x):
    a = x.numpy()
    b, c, d, e = np.array([3.0, 1, 2]), a.copy(), np.zeros(3), np.zeros((3, 2))
    b.sort()
    c.sort()
    d.fill(2)
    d[a > 0] = 1
    np.copyto(b, c)
    np.fill_diagonal(e, 5)
    np.fill_diagonal(e, a[:2])
    f = e.copy()
    np.fill_diagonal(f, a[0])
    return b, c, d, e, f


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def indices_of_different_items(x):
    a, b = x.numpy(), np.zeros((3, 3))
    b[[0, 2]] = a
    b[1, [2, 0]] = a[:2]
    b[[0, 1], [1, 0]] = 7
    b[-1, np.array([0])] = a[2]
    b[[1, 1]] = a[0]
    c = np.zeros(3)
    c[np.minimum(np.abs(a.astype(int)), 2)] = a[1]
    return b, c


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def indices_of_equal_items(x):
    a, b, c = x.numpy(), np.zeros((3, 3)), np.zeros(3)
    b[[0, 0]] = np.stack([a, a + 1])
    c[[0, -3]] = a[:2]
    return b, c


@table.snippet(max_graphs=1, args=three, twins=TWINS, tolerance=ROUNDED)
def numbers_of_an_array(x):
    a = x.numpy() * 2
    b = [v * 2 for v in a], sum(a), list(a), [p + q for p, q in zip(a, a[1:], strict=False)], next(iter(a)), dict(enumerate(a))
    first, *rest = a
    for i, v in enumerate(a):
        a[(i + 1) % 3] += v
    return a, b, first, rest


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def numbers_that_change_in_the_loop(x):
    a, b, c, found = x.numpy(), np.arange(4.0), np.arange(4.0), []
    for i, v in enumerate(b):
        found.append(v * a[1])
        b[(i + 1) % 4] += v
    for i, v in enumerate(c):
        found.append(v * a[1])
        c[(i + 1) % 4] += a[0]
    it = iter(b)
    b[0] = a[1]
    return found, b, c, list(it)


@table.snippet(breaks=True, min_graphs=0, recompiles=range(4), calls=4, args=three, twins=BROKEN)
def loops_with_breaks(x):
    a, b, y = x.numpy() * 2, np.arange(4.0), x * 1
    for i, v in enumerate(b):
        b[(i + 1) % 4] += 1
        y = y + v
        fineline.graph_break()
        b[(i + 2) % 4] += 1
        y = y * v
    for i, v in enumerate(a):
        a[(i + 1) % 3] += v
        fineline.graph_break()
        a[(i + 2) % 3] += v
    return y, a, b


@table.snippet(breaks=True, min_graphs=0, recompiles=range(4), calls=4, args=three, twins=BROKEN)
def iterators_that_are_alive_at_a_break(x):
    y = x * 2
    a, b = y.numpy(), np.arange(3.0)
    p, q, r = iter(a), iter(b), zip(a, b, strict=True)
    first = next(p) * 2, next(q) * y, np.stack(next(r)) * 2
    fineline.graph_break()
    y += 1
    b[1] = 7
    second = next(p) * 2, next(q) * y, np.stack(next(r)) * 2
    fineline.graph_break()
    return first, second, [v * y for v in (*p, *q)], len(list(r)), y


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def memory_that_others_show(x):
    a, b, c, d, e, f = x.numpy(), np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3), np.zeros(3)
    numbers, back, view, wide, shared = b.flat, c[::-1], memoryview(d), e.view(np.int64), torch.from_numpy(f)
    for made in (b, c, d, e, f):
        made[0] = a[0]
    return list(numbers), back, view[0], wide, shared + 1, [b, c, d, e, f], b.view()


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def what_may_not_be_written(x):
    a, b, c, found = x.numpy(), np.zeros(3), np.zeros((2, 3)), []
    b.flags.writeable = False
    for made, key in ((b, 0), (np.broadcast_to(c, (2, 2, 3)), 0), (c, (0, 5)), (np.zeros(2), slice(None))):
        try:
            made[key] = a
        except (ValueError, IndexError) as e:
            found.append(str(e))
    c[0] = a
    return found, b, c


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def errors_of_arithmetic(x):
    a, b, c = x.numpy(), np.array([1e200, 1.0]), np.array([1e200, 1.0])
    with np.errstate(all="ignore"):
        b *= 1e200
        np.multiply(c, 1e200, out=c)
    return b, c, a * 2


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def an_operator_that_overflows(x):
    b = np.array([1e200, 1.0])
    b *= 1e200
    return b, x.numpy() * 2


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def a_function_that_overflows(x):
    b = np.array([1e200, 1.0])
    np.multiply(b, 1e200, b)
    return b, x.numpy() * 2


@table.snippet(max_graphs=1, args=three, twins=TWINS)
def numbers_of_other_dtypes(x):
    a, b, c = x.numpy(), np.zeros(3, bool), np.zeros(3, np.int8)
    b[0] = c[0] = a[0]
    b[1], b[2] = 0.5, np.float64(0.25)
    c[1], c[2] = 2.7, np.float64(-2.7)
    return b, c


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def a_sort_that_raises(x):
    a = x.numpy() * 2
    try:
        a.sort(axis=None)
    except TypeError as e:
        return str(e), a


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def memory_of_another_part_that_a_tensor_shows(x):
    a, b = x.numpy(), np.zeros(6)
    y, v = torch.from_numpy(b[3:]), b[:3]
    v[:] = a
    b[3] = a[0]
    return y + 1, b, v


@table.snippet(max_graphs=2, recompiles=(1,), args=lambda k: (t(k, 3 + k).detach(),), calls=4, twins=TWINS)
def sizes_that_vary(x):
    a, b = x.numpy(), np.ones(2)
    b[1] = a[0]
    b += a[1:3]
    return b, a * b.sum(), len(a), len(b)


@table.program(max_graphs=2, recompiles=(1,), args=lambda k: (t(k), np.ones((5 - k, 4))), calls=4, twins=TWINS)
def lengths_of_arrays_from_outside():
    return lambda x, a: (x * len(a), len(a), len(np.zeros(len(x))))


@table.program(breaks=True, min_graphs=0, recompiles=(1, 2, 3), calls=4, args=three, twins=BROKEN)
def across_calls():
    kept: list[np.ndarray] = []

    def fn(x):
        a, b = x.numpy(), np.zeros(3)
        b[1] = a[1]
        kept.append(b)
        fineline.graph_break()
        b[2] = a[2]
        kept[0][0] += 1
        return b * 2

    return fn, kept


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_written_arrays(program: Program, twin: str) -> None:
    check(program, twin)
