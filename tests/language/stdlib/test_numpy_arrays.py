"""NumPy's arrays in captured code: those made of constants are constants, and tensors made of them are new ones at each call."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
# A tensor of an array is made by another operator than the user's code calls.
TWINS = ("captured", "reference", "borders", "limit1", "fake", "dynamic", "strict", "aot", "aot_fake", "aot_dynamic")
# ... where the code goes on behind what no graph holds.
BROKEN = tuple([twin for twin in TWINS if twin != "strict"])


@table.snippet(max_graphs=1, twins=TWINS)
def a_grid(x):
    grid = torch.tensor(np.linspace(0, 1, 4), dtype=torch.float).reshape(1, 4).repeat([3, 1])
    return torch.cat((x, grid.to(x.device)), -1)


# With a border behind each operator the array is alive there beside a tensor with its memory, at first.
@table.snippet(max_graphs=1, recompiles=(1,), twins=TWINS)
def positions(x):
    at = np.arange(3)[:, None] / np.power(10000, 2 * (np.arange(4) // 2) / 4)
    table = np.where(np.arange(4) % 2 == 0, np.sin(at), np.cos(at))
    return x + torch.from_numpy(table).float(), torch.as_tensor(-table, dtype=torch.float64)


@table.snippet(max_graphs=1, twins=TWINS)
def written_before_it_is_a_tensor(x):
    a = np.zeros((3, 4), dtype=np.float32)
    a[:, 0::2] = np.arange(2)
    y = x + torch.tensor(a)
    a[0] = 7
    return y * torch.tensor(a), torch.tensor(a)


@table.snippet(max_graphs=1, twins=TWINS)
def tensors_are_new_ones(x):
    a = torch.from_numpy(np.ones(4, dtype=np.float32))
    a.add_(x[0].detach())
    b = torch.tensor(np.arange(4.0))
    b.mul_(2)
    return a, b, x * 2


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2), calls=4, twins=BROKEN)
def memory_of_an_array_and_a_tensor(x):
    a = np.zeros(4, dtype=np.float32)
    b = torch.from_numpy(a)
    b.add_(x[0].detach())
    a[0] = 9
    return a, b, a[1:] * 2, x + b


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2), calls=4, twins=BROKEN[:-3])
def memory_of_two_tensors(x):
    a = np.zeros(4, dtype=np.float32)
    b, c = torch.from_numpy(a), torch.as_tensor(a[1:])
    b.add_(x[0].detach())
    return b, c * 2


@table.snippet(breaks=True, min_graphs=0, recompiles=(1, 2), calls=4, twins=BROKEN)
def written_where_a_tensor_lies(x):
    a, b = np.zeros(4, dtype=np.float32), np.ones(4, dtype=np.float32)
    np.add(b, b, b)
    c = torch.from_numpy(a)
    np.add(b, 1, a)
    return x + c, x * torch.tensor(b)


@table.snippet(calls=3, twins=TWINS)
def arrays_given_back(x):
    a = np.arange(6).reshape(2, 3)
    b = a[1:, ::2]
    return x + int(a[1, 2]), a, b, a is b, b.base is a.base, a.shape, a.dtype, [np.ones(2)], a.T


@table.snippet(breaks=True, min_graphs=0, recompiles=(1,), calls=4, twins=BROKEN)
def one_that_may_not_be_written(x):
    a = np.broadcast_to(np.arange(4.0), (3, 4))
    return x + torch.tensor(a), a, a.flags.writeable


@table.snippet(breaks=True, twins=BROKEN)
def across_a_break(x):
    a = np.linspace(0, 1, 4, dtype=np.float32)
    y = x * 2
    fineline.graph_break()
    a[0] = 5
    return y + torch.tensor(a), a


@table.snippet(breaks=True, min_graphs=0, twins=BROKEN, recompiles=(1, 2))
def what_numpy_refuses_or_warns_of(x):
    said = []
    for make in (lambda: np.arange(3).reshape(2, 2), lambda: torch.from_numpy(np.arange(4)[::-1]), lambda: np.zeros(3) @ np.zeros(2)):
        try:
            make()
        except ValueError as e:
            said.append(str(e)[:40])
    return x + 1, said, np.array(["a", "b"])[0], np.array([1, None], dtype=object)[0]


@table.program(twins=BROKEN, breaks=True, recompiles=(1, 2, 3), calls=4, change={2: lambda a: a.__setitem__(0, 5.0)})
def an_array_from_outside():
    a = np.arange(4, dtype=np.float32)
    return lambda x: (x + torch.tensor(a), torch.tensor(a * 2)), a


@table.program(recompiles=(2,), calls=4, max_graphs=2, change={2: lambda held: held.__setitem__("n", 3)}, twins=TWINS)
def a_length_from_outside():
    held = {"n": 4, "dtype": np.float32}
    return lambda x: x[:, : held["n"]] + torch.tensor(np.linspace(0, 1, held["n"]).astype(held["dtype"])), held


@table.snippet(max_graphs=1, twins=TWINS, args=lambda n: (t(n), 4), recompiles=(1, 2, 3))
def a_mask(x, n):
    with torch.no_grad():
        mask = torch.from_numpy(np.tril(np.ones((n, n))) > 0)
    return x.masked_fill(mask[:3], 0.0), torch.tensor(np.float32(0.5) * np.array([2.0]))


@table.snippet(max_graphs=1, twins=TWINS)
def other_orders_and_types(x):
    a = np.arange(6.0).reshape(2, 3)
    return (
        [torch.tensor(b) for b in (a.T, a[:, ::2], a.astype(np.int16), a > 2, np.array(3), np.zeros((0, 2)))],
        torch.tensor(a.T, dtype=torch.half),
        x + 1,
    )


@table.snippet(max_graphs=1, twins=TWINS)
def under_inference_mode(x):
    with torch.inference_mode():
        a = torch.from_numpy(np.ones(4, dtype=np.float32))
        y = x.detach() * a
    return y.is_inference(), a.is_inference(), x * 2


def array(k: int) -> np.ndarray:
    return np.arange(6, dtype=np.float32) + k


def worked_on(a: torch.Tensor, b: torch.Tensor, x: torch.Tensor) -> Any:
    a.mul_(x[0, 0] + 2)
    y = b * 3 + b.sin() - b.cos()
    a.sub_(1)
    return y + b, a.sum(), x.relu() + x.exp()


GLOBAL = np.linspace(0, 1, 4, dtype=np.float32)


class Held(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.grid: Any = np.arange(4, dtype=np.float32)

    def forward(self, x):
        y = x + torch.from_numpy(self.grid).to(x.device)
        return y * torch.tensor(self.grid) + torch.as_tensor(GLOBAL, dtype=torch.float64), torch.as_tensor(self.grid).shape


def other_numbers(held: Held) -> None:
    held.grid[1:] = 7


def another_array(held: Held) -> None:
    held.grid = np.arange(4, dtype=np.float32)[::-1].copy()


def of_doubles(held: Held) -> None:
    held.grid = held.grid.astype(np.float64)


def not_to_be_written(held: Held) -> None:
    held.grid.flags.writeable = False


def backwards(held: Held) -> None:
    held.grid = np.arange(4, dtype=np.float32)[::-1]


def of_nothing_known(held: Held) -> None:
    held.grid = np.array([1, "a"], dtype=object)


def shorter(held: Held) -> None:
    held.grid = np.ones(1, dtype=np.float32)


CHANGES = {1: other_numbers, 2: another_array, 3: of_doubles, 4: shorter}


@table.program(calls=6, change=CHANGES, recompiles=(3, 4), max_graphs=3, twins=TWINS)
def arrays_from_outside() -> Any:
    held = Held()
    return lambda x: held(x), held


@pytest.mark.filterwarnings("ignore")
@table.program(calls=6, change={2: backwards, 3: of_nothing_known, 4: another_array, 5: not_to_be_written}, recompiles=(2, 3, 4, 5), breaks=True, twins=BROKEN)
def arrays_that_are_no_tensors() -> Any:
    held = Held()

    def fn(x):
        try:
            return held(x)
        except (TypeError, ValueError) as error:
            return x + 1, type(error)

    return fn, held


@table.snippet(args=lambda k: (t(k), array(k)), min_graphs=0, backward=False, twins=TWINS)
def written_through_tensors(x, a):
    shown, again, copy = torch.from_numpy(a), torch.asarray(a), torch.tensor(a)
    shown.add_(x[0, 0])
    late = torch.tensor(a)
    again[2:].mul_(2)
    return shown, again is shown, copy, late, a


@table.snippet(calls=4, args=lambda k: (t(k), np.ones((2 + k, 4), dtype=np.float32)), recompiles=(1,), max_graphs=2, twins=TWINS)
def arrays_of_other_sizes(x, a):
    rows = torch.from_numpy(a)
    return rows.sum(0) + x * rows.shape[0], rows.T


@table.program(calls=4, breaks=True, min_graphs=0, twins=BROKEN)
def memory_that_code_writes() -> Any:
    memory = bytearray(8)
    a = np.frombuffer(memory, dtype=np.uint8)

    def fn(x):
        memory[0] += 1
        y = torch.from_numpy(a) + x[0, 0].long()
        memory[1] += 2
        return y, bytes(memory)

    return fn, memory


@table.snippet(args=lambda k: (t(k), np.array(k + 2), np.zeros(1, dtype=np.int64)), breaks=True, recompiles=(1, 2), backward=False, twins=BROKEN)
def sizes_in_arrays(x, n, m):
    size, same = torch.from_numpy(n), torch.from_numpy(n)
    y = torch.ones(size, 4).sum() + x
    same.add_(1)
    return y, torch.ones(size, 4).sum(0) * x


@table.snippet(calls=4, args=lambda k: (t(k), array(k)[:4]), breaks=True, recompiles=(1,), backward=False, twins=BROKEN)
def in_an_inference_mode(x, a):
    with torch.inference_mode():
        y = torch.from_numpy(a) + x[0, 0]
    return y + 1, y.is_inference()


@table.program(calls=4, max_graphs=1, twins=TWINS)
def kept_by_the_code() -> Any:
    held: dict[str, Any] = {"grid": np.arange(4, dtype=np.float32), "seen": []}

    def fn(x):
        held["tensor"] = torch.from_numpy(held["grid"])
        held["tensor"].label = "grid"
        held["grid"] = held["grid"]
        return x * held["tensor"]

    return fn, held


# To a compiler these (``min_graphs``: the graph runs as it is) are two inputs with memory of their own.
@table.snippet(args=lambda k: (t(k), array(k)), min_graphs=0, backward=False, twins=TWINS)
def two_tensors_of_one_array(x, a):
    return worked_on(torch.from_numpy(a[:4]), torch.from_numpy(a[2:]), x), a


@table.snippet(args=lambda k: (t(k), torch.from_numpy(array(k)), torch.from_numpy(array(k))), backward=False)
def tensors_of_two_arrays(x, a, b):
    return worked_on(a, b, x), a, b


def overlapping(k: int) -> tuple:
    own, a = torch.arange(6.0), array(k)
    return t(k), own if k % 2 else torch.from_numpy(a), torch.from_numpy(a[1:])


@table.snippet(calls=5, args=overlapping, min_graphs=0, backward=False)
def now_of_one_array_and_now_not(x, a, b):
    return worked_on(a[:5], b, x), a, b


@table.snippet(calls=4, args=lambda k: (t(k), torch.arange(6.0)), breaks=True, min_graphs=0, backward=False, twins=BROKEN)
def a_tensor_and_its_array(x, a):
    return worked_on(a, torch.from_numpy(a.numpy()), x), a


# It is passed on unread: no program is for one number.
@table.snippet(breaks=True, calls=5, min_graphs=0, backward=False, twins=BROKEN, tolerance=1e-6)
def a_number_of_numpys_behind_a_break(x):
    total = x.detach().numpy().sum()
    fineline.graph_break()
    return [total], x + 1


# Operators take the real part, and warn of it.
@table.snippet(breaks=True, recompiles=range(5), calls=5, min_graphs=0, backward=False, twins=BROKEN)
def a_complex_number_of_numpys(x):
    z = np.complex64(complex(x.sum().item(), 1))
    fineline.graph_break()
    return x * z, torch.full((2,), z)


@table.snippet(breaks=True, recompiles=range(5), calls=5, min_graphs=0, backward=False, twins=BROKEN)
def an_exception_of_numpys(x):
    positive = x.detach().numpy().sum() > 0
    fineline.graph_break()
    try:
        return +positive
    except TypeError as e:
        return type(e).__name__, str(e)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_numpy_arrays(program: Program, twin: str) -> None:
    check(program, twin)
