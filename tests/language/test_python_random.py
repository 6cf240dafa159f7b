"""Random numbers of Python's and NumPy's: drawn anew at each call, in the order of the code, and the state goes on as eager's does."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

import fineline
from tests.oracle import Program, Table, check

table = Table()

OWN = random.Random(3)


# Of numbers that vary, the graph makes the tensor with other operators.
@table.snippet(breaks=True, calls=6, recompiles=(1, 2), max_graphs=3, twins=("captured", "reference", "borders", "fake", "dynamic", "aot"))
def a_sample_as_an_index(x):
    y = x + 1
    return y[torch.tensor(random.sample(range(x.shape[0]), 2))] * 2


@table.snippet(breaks=True, calls=6, recompiles=(1, 2, 3))
def several_kinds_of_draws(x):
    a = x * random.randint(2, 1000) + random.uniform(0, 1)
    b = random.gauss(0, 1) + random.betavariate(1, 2) + random.triangular() + random.expovariate(1.5)
    return a + b, random.choices([1.5, 2.5], weights=[1, 2], k=3)


@table.snippet(breaks=True, calls=6, recompiles=(1, 2, 3, 4, 5))
def a_list_made_here_is_shuffled(x):
    parts = [x, x + 1, x * 2]
    random.shuffle(parts)
    return parts[0] - parts[1], parts, random.choice(parts) is parts[0]


@table.program(breaks=True, calls=6, recompiles=(1, 2, 3, 4, 5))
def a_list_from_outside_is_shuffled():
    held = [1, 2, 3, 4]

    def fn(x):
        before = held[0]
        random.shuffle(held)
        return x * held[0] + before, [x * n for n in held]

    return fn, held


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3))
def an_instance_from_outside(x):
    OWN.seed(x.shape[0])
    y = x * OWN.randrange(1, 1000)
    state = OWN.getstate()
    z = y + OWN.randint(1, 1000)
    OWN.setstate(state)
    return y, z, OWN.randint(1, 1000), OWN.random()


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3))
def an_instance_made_here(x):
    mine = random.Random(5)
    picked = mine.sample([x, x + 1, x + 2], k=2)
    return picked[0] * mine.randint(1, 5) - picked[1], mine.random()


@table.program(breaks=True, calls=4, recompiles=(1, 2, 3))
def a_class_with_its_own_numbers():
    class Loaded(random.Random):
        """Its own random() is Python code, which the methods of the class it comes from call."""

        drawn = 0

        def random(self):
            Loaded.drawn += 1
            return 0.5

        def twice(self, n):
            return self.randrange(n), super().sample(range(n), 2)

    loaded = Loaded(1)

    def fn(x):
        before = Loaded.drawn
        one, two = loaded.twice(5)
        return x + loaded.uniform(1, 3), loaded.choice([1, 2, 3]), one, two, Loaded.drawn - before

    return fn, Loaded


@table.snippet(breaks=True, calls=6, recompiles=(1, 2, 3, 4, 5))
def branches_on_draws_in_a_loop(x):
    taken = []
    for n in range(3):
        if random.random() < 0.5:
            x = torch.sin(x) * 2
            taken.append(n)
        else:
            x = x + 1
    return x, taken


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3))
def draws_that_raise(x):
    y, said = x * 2, []
    for draw in (lambda: random.choice([]), lambda: random.randint(2, 1), lambda: random.sample([1], 3), lambda: random.randint("a", 1)):
        try:
            draw()
        except (IndexError, ValueError, TypeError) as e:
            said.append((type(e), str(e)))
    return y + 1, said, random.random()


@table.snippet(breaks=True, calls=4, recompiles=(1, 2, 3))
def draws_from_what_python_code_gives(x):
    def weights():
        for n in range(1, 4):
            yield n + random.random()

    return x * random.choices([1, 2, 3], weights=list(weights()))[0], random.sample(sorted(n * 2 for n in range(9)), counts=[2] * 9, k=3)


@table.snippet(breaks=True, calls=6, recompiles=(1, 2))
def a_draw_right_before_and_after_a_break(x):
    n = random.randint(3, 10**6)
    fineline.graph_break()
    m = random.randint(3, 10**6)
    return x * n + m


@table.program(breaks=True, calls=5, recompiles=(1, 2, 3), change={3: lambda held: held.__setitem__(0, random.uniform)})
def another_function_in_its_place():
    held = [random.randint]
    return lambda x: x * held[0](1, 1000) + 1, held


@table.snippet(breaks=True, calls=6, recompiles=(1, 2))
def numbers_of_numpys(x):
    y = x * np.random.random()
    return y + np.random.uniform(1, 2), np.random.randint(0, 5, 3).tolist()


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_python_random(program: Program, twin: str) -> None:
    check(program, twin)
