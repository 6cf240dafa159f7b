"""Functions that break the graph over and over without an operator in between: they run as one call, and capture goes on behind them."""

from __future__ import annotations

import contextlib
import random
import zlib
from typing import Any

import numpy as np
import pytest
import torch

import fineline
from fineline import graph_break
from tests.oracle import Probe, Program, Table, check, t

table = Table()
ONCE = {"breaks": True, "calls": 4, "recompiles": (1,)}


def plan(n, offset=0):
    steps = np.arange(n)
    out = np.zeros((n, 2), dtype=np.int64)
    for i in range(1, n):
        out[i, :] = np.random.permutation(steps[:n])[:2] + offset
    return out


@table.snippet(**ONCE)
def one_that_plans_with_numpy(x):
    for _ in range(3):
        index = torch.from_numpy(plan(12))
        x = (x * 2 + 1)[index[:, 0] % x.shape[0]]
    return x


@table.snippet(**ONCE)
def one_that_writes_to_a_list_from_around(x):
    seen, total = [], 0

    def look(n):
        nonlocal total
        for i in range(n):
            seen.append(int(np.sqrt(np.float64(i * i))))
            total += seen[-1]
        return seen

    held = look(20)
    y = x * total
    again = look(15)
    return y + len(seen), seen, held is again


@table.snippet(**ONCE)
def one_that_raises(x):
    def look(n):
        for i in range(40):
            if zlib.crc32(b"", i) == n:
                raise KeyError(i)

    y = x + 1
    for n in (20, 30):
        try:
            look(n)
        except KeyError as e:
            y = y * e.args[0]
    return y * 2


@table.snippet(**ONCE)
def one_that_handles_what_it_raises(x):
    def look():
        found = []
        try:
            for i in range(30):
                found.append(zlib.crc32(b"", i))
                if i == 20:
                    raise ValueError(i)
        except ValueError as e:
            found.append(str(e))
        finally:
            found.append("done")
        return found

    y = x + 1
    return look(), y * 2, look(), (y + 1) * 3


@table.snippet(**ONCE)
def one_in_a_context_that_a_generator_makes(x):
    seen = []

    @contextlib.contextmanager
    def noted(name):
        seen.append(name)
        try:
            yield name
        finally:
            seen.append(f"not {name}")

    with noted("here") as name:
        y = x * sum_of(20)
        seen.append(name)
        z = y + 1
    return y, z * 2, seen


@table.snippet(breaks=True)
def a_block_in_a_context_that_a_generator_makes(x):
    seen = []

    @contextlib.contextmanager
    def noted():
        try:
            yield seen
        finally:
            seen.append("over")

    with noted():
        with fineline.disable():
            y = x * 2 + 1
        seen.append("disabled")
        z = y + 1
    return y, z * 2, seen


@table.snippet(**ONCE, min_graphs=0)
def one_inside_of_a_transform(x):
    def loss(v):
        return (v * x * sum_of(20)).sin().sum()

    return torch.func.grad_and_value(loss)(x * 2)


@table.program(breaks=True, calls=5, recompiles=(1, 3, 4), change={3: lambda held: held.__setitem__("look", other_look)})
def another_in_its_place():
    held = {"look": look_at}
    return lambda x: (x * held["look"](20) + 1, x + held["look"](21)), held


def look_at(n):
    return sum([zlib.crc32(b"", i) for i in range(n)]) + sum_of(n)


def sum_of(n):
    total = 0
    for i in range(n):
        total += zlib.crc32(b"", i)
    return total


def other_look(n):
    return sum_of(n) * 2


@table.program(breaks=True, calls=5, recompiles=range(1, 5), args=lambda place: (t(place), 20 + place))
def one_that_is_longer_at_each_call():
    return lambda x, n: (x * sum_of(n), (x + 1) * sum_of(3))


@table.snippet(**ONCE)
def one_that_makes_tensors_in_the_end(x):
    def made(n):
        for i in range(n):
            np.arange(i)
        return torch.ones(n) * 2 + 1

    y = x.sum() * 2
    return made(20) + y, made(15) * y


@table.snippet(breaks=True, calls=4)
def one_with_a_tensor_is_captured_on(x):
    def looped(x):
        for i in range(20):
            np.arange(i)
        return torch.sin(x) * 2

    return looped(x) + 1


def spans(shape, prob, mask):
    """Plans in NumPy after a look at a tensor, as speech models mask their time steps; each call draws other numbers."""
    epsilon = np.random.rand(1).item()
    out = np.zeros(shape, dtype=bool)
    for row, n in enumerate(mask.sum(-1).tolist()):
        k = max(int(prob * n + epsilon), 1)
        found = np.random.choice(np.arange(n), k, replace=False)
        out[row, np.concatenate([found, np.ones(4 - k, dtype=np.int32) * found[0]])] = True
    return out


@table.snippet(breaks=True, calls=6, recompiles=(1,), max_graphs=3)
def one_that_reads_a_tensor_first(x):
    y = x.sin() + 1
    return (y * torch.tensor(spans(x.shape, 0.4, torch.ones_like(x, dtype=torch.long)), dtype=torch.float)).cos()


@table.snippet(breaks=True, calls=5, recompiles=(1,))
def one_that_computes_much_first(x):
    """Its operators stay in graphs: only the rest of each of its calls is left."""
    seen = []

    def look(v):
        for n in range(12):
            v = v * 0.5 + n
        seen.append(v.sum().item())
        return sum_of(20)

    return look(x) + x, look(x + 1) * x, seen


@table.snippet(**ONCE)
def in_one_another(x):
    def inner(n):
        return [zlib.crc32(b"", i) for i in range(n)]

    def outer():
        return [inner(3) for _ in range(9)]

    y = x * 3
    return outer(), y + 1, outer(), torch.cos(y)


@table.snippet(**ONCE)
def in_a_method_with_keywords_and_a_property(x):
    class Planner:
        def __init__(self):
            self.drawn = 0

        def draw(self, n, *, most=5):
            for _ in range(n):
                self.drawn += random.randint(1, most)
            return self

        @property
        def looked(self):
            return sum([sum_of(2) for _ in range(20)])

    p = Planner()
    y = x * p.draw(20, most=9).drawn
    return y + p.draw(20).drawn, y * p.looked, p.looked, p.drawn


@table.snippet(**ONCE)
def with_breaks_around(x):
    y = x * 2
    graph_break()
    n = sum_of(20)
    graph_break()
    z = y + n
    m = sum_of(21)
    graph_break()
    return z * m


@table.snippet(**ONCE)
def in_no_grad_and_in_a_comprehension(x):
    with torch.no_grad():
        a = [x * sum_of(n) for n in (20, 15, 14)]
        b = torch.is_grad_enabled()
    return a, b, x * sum_of(13), torch.is_grad_enabled()


@torch.inference_mode()
def encoded(words):
    ids = torch.tensor([[0.5] * 3] * sum_of(len(words)))
    for _ in range(40):
        ids = (ids * 2).sin().cos()
    return ids


@table.snippet(breaks=True, calls=4, recompiles=(1, 2))
def with_an_inference_mode_around(x):
    return x + encoded("a text with words").sum()


@table.snippet(**ONCE)
def asked_for_by_a_generator(x):
    def numbers():
        for n in (20, 15):
            yield sum_of(n)

    return [x * n for n in numbers()], x + 1


@table.snippet(breaks=True, calls=3)
def that_is_a_generator(x):
    def numbers():
        for n in range(20):
            yield zlib.crc32(b"", n)

    y = x * 2
    return [y + n for n in list(numbers())[:3]]


@table.snippet(breaks=True, calls=3)
def whose_breaks_were_asked_for(x):
    def looped(n):
        for _ in range(n):
            graph_break()
        return n

    return x * looped(20) + 1, x + looped(15)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_idle_functions(program: Program, twin: str) -> None:
    check(program, twin)


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.linear(x)[torch.from_numpy(plan(16))[:4, 0] % 4].relu() + x


@pytest.mark.parametrize("options", [{}, {"dynamic": True}, {"options": {"first_call": "compiled"}}])
def test_graphs_and_breaks(options: dict) -> None:
    layers = torch.nn.Sequential(*[Layer() for _ in range(8)])
    compiled = fineline.compile(layers, backend=(probe := Probe()), **options)
    graphs = []
    for place in range(4):
        np.random.seed(place)
        # Like the inputs of all other layers.
        x = t(place, 4, 4, grad=True)
        expected = layers(x)
        drawn = np.random.random()
        np.random.seed(place)
        assert torch.equal(compiled(x), expected) and np.random.random() == drawn
        graphs.append(len(probe.graphs))
    assert graphs[0] == graphs[3] <= 3
    events = fineline.explain(layers)(t(0, 4, 4)).events
    assert [e.id for e in events if e.kind == "eager"].count("FL436") == 1
    assert sum(e.kind == "break" for e in events) < 24


@pytest.mark.parametrize("length", [11, 12, 13, 20])
def test_what_an_inference_mode_does_behind_breaks_is_captured(length: int) -> None:
    def fn(words: str) -> Any:
        return encoded(words)

    compiled = fineline.compile(fn, backend=(probe := Probe()))
    for _ in range(3):
        assert torch.equal(compiled("a" * length), fn("a" * length))
    assert sum(len(gm.graph.nodes) > 8 for gm in probe.graphs) == 1


def test_an_error_on_recompile_is_none() -> None:
    compiled = fineline.compile(lambda x: x * sum_of(20) + 1, backend="eager", options={"error_on_recompile": True})
    for place in range(3):
        assert torch.equal(compiled(t(place)), t(place) * 190 + 1)
