"""Arguments for which PyTorch's counterpart of a function of NumPy gives something else: dtypes of numbers, limits, ``out``, indices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.oracle import Program, Table, check

table = Table()
TWINS = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "aot", "aot_fake", "aot_dynamic")
BROKEN = tuple([twin for twin in TWINS if twin != "strict"])


def doubles(k: int) -> tuple:
    return torch.arange(6).reshape(2, 3).double() / 7 + k, torch.arange(6).reshape(2, 3) + k


@table.snippet(max_graphs=1, args=doubles, twins=TWINS)
def numbers_in_double_precision(x, i):
    a, b = x.numpy(), i.numpy()
    return np.clip(a, 0.1, 0.7), np.stack([a[0], [0.1, 0.2, 0.3]]), np.clip(b, 0.1, 3.3), np.tensordot(a, [0.1], 0), np.where(a > 0.3, a, 0.1)


def small(k: int) -> tuple:
    return torch.tensor([0, 50 + k, 200], dtype=torch.uint8), (5, 6, -1, 300)[k % 4]


@table.snippet(breaks=True, min_graphs=0, args=small, calls=4, recompiles=range(4), twins=BROKEN)
def limits_outside_the_dtype(x, n):
    a = x.numpy()
    try:
        return np.clip(a, 0, 300), a.clip(-1, 100), np.clip(a, 2, 70), np.clip(a, 0, n)
    except OverflowError as e:
        return str(e)


@table.snippet(breaks=True, min_graphs=0, args=doubles, recompiles=range(4), twins=BROKEN)
def targets_by_position(x, i):
    a = x.numpy()
    sizes = (2, 3), (3,), (2, 3), (2, 3), (2, 2), (4, 3), (2, 3)
    out = [np.zeros(size) for size in sizes]
    np.clip(a, 0, 1, out[0])
    np.sum(a, 0, None, out[1])
    a.cumsum(0, None, out[2])
    np.round(a, 1, out[3])
    a.dot(a.T, out[4])
    np.concatenate([a, a], 0, out[5])
    np.add(a, a, out[6])
    np.clip(a, 0, 1, a)
    return out, x


def overlapping(k: int) -> tuple:
    a = np.arange(6.0) + k
    return a[1:], a[:-1]


@table.snippet(args=overlapping, max_graphs=2, recompiles=range(3), twins=("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict"))
def writes_between_inputs(a, b):
    a[...] = b
    b[1:] = a[1:] * 2
    b[:2] = a[:2]
    a += b
    np.add(a, b, out=b)
    return a, b


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (torch.arange(24.0).reshape(2, 3, 4) + k, k % 2), recompiles=range(4), twins=BROKEN)
def indices_apart(x, n):
    a, i = x.numpy(), np.array([1, 0])
    return a[0, :, i], a[0, ..., i], a[i, :, 1], a[n, :, i], a[i, None, 1], a[i, :, i], a[0, i, :], a[:, i, 1], a[:, 0, i], a[:, i, i], a[..., 0, i]


@table.snippet(breaks=True, min_graphs=0, args=doubles, recompiles=range(4), twins=BROKEN)
def methods_of_scalars(x, i):
    # Each gets a scalar that no graph break has made yet.
    of_floats = (
        lambda s: s.item(), lambda s: s.tolist(), lambda s: s.__float__(), lambda s: s.__int__(), lambda s: s.__bool__(), lambda s: s.conj(),
        lambda s: s.view(np.int64), lambda s: s.tobytes(), lambda s: divmod(s, 2), lambda s: divmod(7, s), lambda s: s.__round__(1),
        lambda s: s.dot(2), lambda s: s.astype(np.int8), lambda s: s.__divmod__(2), lambda s: s.is_integer(), lambda s: s.clip(0, 1),
    )  # fmt: skip
    of_ints = (lambda n: n.item(), lambda n: n.__index__(), lambda n: n.tobytes(), lambda n: n.byteswap(), lambda n: n.__lshift__(2), lambda n: n.bit_count())
    return [f(x.numpy().sum()) for f in of_floats], [f(i.numpy().max()) for f in of_ints]


@table.snippet(breaks=True, min_graphs=0, args=doubles, recompiles=range(4), twins=BROKEN)
def ints_that_are_rounded(x, i):
    a = i.numpy() * 37
    return np.round(a, -1), a.round(-1), np.around(a, decimals=-2), np.round(a), a.round(2), np.round(x.numpy() * 100, -1)


@table.snippet(breaks=True, min_graphs=0, args=small, calls=8, recompiles=range(8), twins=BROKEN)
def ints_written_into_a_dtype(x, n):
    a = x.numpy()
    said = []
    for write in (lambda: a.__setitem__(0, n), lambda: a.fill(n), lambda: np.full_like(a, n), lambda: np.where(a > 2, a, n), lambda: np.clip(a, n, 200)):
        try:
            said.append(write())
        except OverflowError as e:
            said.append(str(e))
    a[1] = n
    return said, a


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (torch.ones(3) + k, (0.5, 0.1, 1e300)[k % 3]), calls=5, recompiles=range(5), twins=BROKEN)
def floats_written_into_a_dtype(x, s):
    a, b = x.numpy(), x.double().numpy()
    a[0], b[0] = s, s
    a[1] = -1e300
    return a, b, np.full_like(a, s), np.full_like(b, s)


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (torch.tensor([[1e8], [1.0 + k], [-1e8]]),), recompiles=range(4), twins=BROKEN)
def targets_of_another_dtype(x):
    a = x.numpy()
    out = [np.zeros(1) for _ in range(4)]
    np.sum(a, axis=0, out=out[0])
    a.mean(axis=0, out=out[1])
    np.add(a[0], a[1], out=out[2])
    out[3] += a[1]
    return out


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (torch.ones(3) + k,), recompiles=range(4), twins=BROKEN)
def other_byte_orders(x):
    a = x.numpy()
    b = a.astype(">f4"), np.zeros_like(a, dtype=">i4"), np.array(a, dtype=">f4"), np.full_like(a, 2, dtype=">f8")
    return [(c.dtype.str, c.tolist()) for c in b], a.astype("<f4") * 2


# NumPy warns of invalid powers; PyTorch does not.
def bases(k: int) -> tuple:
    return torch.tensor([-np.inf, np.inf, 2.0 + k]), torch.tensor([-0.0, 0.0, np.inf, 2.0 + k])


@table.snippet(max_graphs=1, args=bases, twins=TWINS, tolerance=1e-6)
def powers(x, y):
    a, b, s = x.numpy(), y.numpy(), x.numpy().min()
    of_infinity = [np.power(a, e) for e in (-0.5, -1.0, 3.0, 2)], a**-0.5, s**0.5, s**-0.5, s**2
    return of_infinity, [np.power(b, e) for e in (0.5, 1.0, 3.0, np.float32(0.5), 2)], b**0.5, b**b


@table.snippet(breaks=True, min_graphs=0, args=lambda k: (*bases(k), -k / 2, torch.tensor([0.5])), calls=4, recompiles=range(4), twins=BROKEN)
def powers_that_vary(x, y, e, half):
    a, b, h = x.numpy(), y.numpy(), half.numpy()
    return a**e, np.power(b, h), np.power(b, h[0]), np.power(a.min(), 0.5), np.power(b, np.array(0.5)), b**h.max()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_array_arguments(program: Program, twin: str) -> None:
    check(program, twin)
