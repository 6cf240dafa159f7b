"""Tensors of one whole number given for sizes: guards read those that come from outside, and what is made of them varies with them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
PLACES = (2, 6, 3, 2, 4)


def given(place):
    return t(place, 12), torch.tensor(PLACES[place])


VARIES = {"args": given, "calls": len(PLACES), "recompiles": (1,), "max_graphs": 2}


@table.snippet(**VARIES)
def repeated(x, n):
    return x.sin().repeat(n, 1) + 1


@table.snippet(args=lambda place: (t(place, 1, 4), torch.tensor(PLACES[place])), calls=5, recompiles=(1,), max_graphs=2)
def expanded(x, n):
    return x.sin().expand(n, -1) + 1, torch.broadcast_to(x, (n, 4))


@table.snippet(args=lambda place: (t(place, 12), torch.tensor((2, 6, 3, 2, 4)[place])), calls=5, recompiles=range(1, 5))
def viewed(x, n):
    y = x.sin().view(n, -1)
    return y * y.shape[0], x.reshape(-1, n).sum(0)


@table.snippet(**VARIES)
def narrowed(x, n):
    y = x.sin().narrow(0, 1, n)
    return y + 1, y.shape, x[:n] * 2, x[1:n], x[None, n:]


@table.snippet(args=given, calls=5, recompiles=range(1, 5))
def cut(x, n):
    return [p + 1 for p in x.sin().split(n)], x.chunk(n)[0] * 2


@table.snippet(**VARIES)
def tiled_and_rolled(x, n):
    return x.sin().tile(n) + 1, x.sin().roll(n, 0) * 2


@table.snippet(**VARIES)
def made(x, n):
    y = x.sin()
    return y.sum() + torch.zeros(n), torch.arange(n) + y[0], y.new_ones((n, 2)), torch.eye(n) * 2


@table.snippet(args=given, calls=5, recompiles=range(1, 5))
def by_name(x, n):
    y = torch.zeros(size=(n, 2)) + x.sum()
    z = torch.ones(size=[n]) * 2
    return y * y.shape[0], z * len(z), x.sin().narrow(0, 0, length=n).shape


@table.snippet(args=lambda place: (t(place, 4), torch.tensor((2.5, 3.5, 2.5)[place])), recompiles=(1, 2), breaks=True)
def floats_by_name(x, end):
    y = torch.arange(start=0, end=end)
    return y * len(y), x + 1, torch.full((2,), fill_value=end), torch.linspace(start=end, end=5.0, steps=3)


@table.snippet(args=lambda place: (t(place, 12), torch.tensor(PLACES[place], dtype=torch.int32)), calls=5, recompiles=(1,), max_graphs=2)
def of_32_bits(x, n):
    return x.sin().repeat(n, n) + 1


@table.snippet(args=lambda place: (t(place, 12), torch.tensor((0, 1, 0, 1)[place])), calls=4, recompiles=range(1, 4), max_graphs=2)
def none_and_one(x, n):
    return x.sin().repeat(n, 1) + 1, x[:n] * 2


@table.snippet(args=lambda place: (t(place, 12), torch.tensor((2, -1, 20, 2)[place])), calls=4, recompiles=range(1, 4), breaks=True)
def what_eager_refuses(x, n):
    return x.sin().repeat(n, 1) + 1, torch.arange(n)


@table.snippet(args=lambda place: (t(place, 12), torch.tensor([PLACES[place]])), calls=5, recompiles=range(1, 5), breaks=True, repeats=True)
def of_one_dimension(x, n):
    y = x.sin().repeat(n, 1)
    try:
        return y * len(y), torch.arange(n)
    except TypeError as e:
        return y, str(e)


@table.snippet(args=given, calls=5, recompiles=range(1, 5), breaks=True)
def written_before_it_is_read(x, n):
    n += 1
    y = x.sin().repeat(n, 1)
    n.sub_(1)
    return y * len(y), x[:n] + 1


@table.snippet(args=lambda place: (t(place, 12), torch.tensor([1, PLACES[place]])), calls=5, recompiles=range(1, 5), breaks=True)
def written_through_another_name(x, both):
    first, n = both[0], both[1]
    both.add_(1)
    y = x.sin().repeat(n, 1)
    return y * len(y), x.repeat(first, 1)


@table.snippet(**{**VARIES, "recompiles": range(1, 5), "max_graphs": None}, breaks=True)
def written_behind(x, n):
    y = x.sin().repeat(n, 1)
    n += 1
    z = x.repeat(n, 1)
    return y * len(y), z * len(z)


@table.snippet(args=given, calls=5, recompiles=range(1, 5), breaks=True)
def behind_a_graph_break(x, n):
    y = x.sin().repeat(n, 1)
    print("here")
    z = x.cos().repeat(n, 1)
    return y * len(y), z * len(z)


@table.snippet(args=given, calls=5, recompiles=range(1, 5), breaks=True)
def computed_in_the_graph(x, n):
    m = n + 1
    y = x.sin().repeat(m, 1)
    return y * len(y), m


@table.snippet(args=lambda place: (t(place, 12, grad=True), torch.tensor(PLACES[place])), calls=5, recompiles=(1,), max_graphs=2)
def differentiated(x, n):
    return x.sin().repeat(n, 1) * 2


class Held(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.tensor(2))

    def forward(self, x):
        return x.sin().repeat(self.n, 1) + self.n


def _count(module):
    module.n += 1


def _replace(module):
    module.n = torch.tensor(2)


@table.program(calls=5, change={1: _count, 3: _count, 4: _replace}, recompiles=(1,), max_graphs=2)
def a_buffer():
    module = Held()
    return module, module


@table.program(calls=4, change={2: lambda held: held.append(held.pop() + 1)}, recompiles=(2,), max_graphs=2)
def in_a_list_of_the_closure():
    held = [torch.tensor(2)]
    return (lambda x: x.sin().repeat(held[0], 1) + 1), held


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program: Program, twin: str) -> None:
    check(program, twin)


def test_one_graph_for_all_sizes_under_fullgraph():
    def fn(x, n):
        return x.sin().repeat(n, 1) + 1

    compiled = fineline.compile(fn, backend="eager", fullgraph=True)
    x = t(0, 3)
    for n in (2, 5, 3, 1, 0, 4):
        assert torch.equal(compiled(x, torch.tensor(n)), fn(x, torch.tensor(n)))
