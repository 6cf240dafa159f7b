"""Random numbers of Python's and NumPy's: drawn anew at each call, in the order of the code, and the state goes on as eager's does."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import fineline
from tests.oracle import Program, Table, check, t

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
def draws_that_warn(x):
    return x * random.randint(1.0, 5.0), x + random.randrange(10.0)  # type: ignore[arg-type]


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

def seeded(n):
    """Between calls: the generators of the process begin anew."""

    def change(*_):
        random.seed(n)
        np.random.seed(n)

    return change


@table.snippet(calls=6, max_graphs=1)
def numbers_that_only_go_into_arithmetic(x):
    a = x * random.randint(2, 1000) + random.uniform(0, 1)
    b = random.gauss(0, 1) + random.betavariate(1, 2) + random.triangular() + random.expovariate(1.5)
    return a + b, random.randrange(5) + 1, random.getrandbits(40), random.randrange(3, 90, 7)


@table.program(calls=6, max_graphs=1, change={2: seeded(5), 4: seeded(5)})
def a_seed_between_calls():
    def fn(x):
        lam = np.random.beta(0.4, 0.4)
        return (lam * x + (1 - lam) * x.flip(0)) * random.random(), lam

    return fn, None


@table.snippet(calls=6, max_graphs=1)
def in_a_loop_without_branches(x):
    for _ in range(4):
        x = torch.sin(x) * np.random.random() + random.gauss(0, 1)
    return x


@table.snippet(calls=5, max_graphs=1)
def an_operator_before_and_numbers_returned(x):
    y = x + 1
    a, b = random.random(), np.random.randint(3, 90)
    return y * a, a, b, a * 2 + b, [random.uniform(b, 100) if False else a]


@table.snippet(calls=5, max_graphs=1)
def drawn_and_not_used(x):
    p = np.random.uniform(0, 1)
    skip = True if False and p < 0.5 else False
    return x * 2 if not skip else x


@table.program(calls=6, max_graphs=2, recompiles=(3,), change={3: lambda held: held.__setitem__(0, False)})
def a_draw_on_one_way_only():
    held = [True]

    def fn(x):
        if held[0]:
            x = x * random.random()
        return x + 1

    return fn, held


@table.snippet(breaks=True, calls=6, recompiles=(1, 2, 3, 4, 5))
def one_decides_and_others_do_not(x):
    a = random.random()
    if random.random() < 0.5:
        x = torch.sin(x) * random.uniform(1, 2)
    return x * a + random.gauss(0, 1)


@table.snippet(breaks=True, calls=5, recompiles=(1, 2, 3, 4))
def printed_and_compared(x):
    n = random.randint(3, 5)
    y = x * n + random.random()
    print("between")
    m = random.randint(0, 10**6)
    z = y + m
    return z, f"{m}", n == 4


@table.snippet(breaks=True, calls=4, max_graphs=2)
def in_eager_code_in_between(x):
    y = x * random.random()
    random.Random.random(random._inst)
    fineline.graph_break()
    z = y * random.random() + np.random.rand()
    return z, random.getstate() == random.getstate()


def rows(n):
    return t(n), torch.tensor([n % 3, 7 if n in (2, 3) else 0])


@table.snippet(calls=6, max_graphs=1, recompiles=(2, 3), args=rows)
def an_operator_that_raises_between_two_draws(x, i):
    y = x * random.random()
    z = torch.nn.functional.embedding(i, y)
    return z * random.random() + np.random.rand()


@table.snippet(calls=4, max_graphs=1)
def compared_with_what_they_always_are(x):
    for _ in range(3):
        p = np.random.uniform(0, 1)
        if p >= 0.0 and not p < 0 and (random.random() < 1.0 or 1.5 < random.random()):
            x = torch.sin(x)
    return x * 2


# Compilers round the factor in another way.
@table.snippet(breaks=True, calls=6, recompiles=(1, 2, 3, 4, 5), tolerance=1e-6)
def a_hyperparameter_that_is_drawn(x):
    try:
        return torch.nn.functional.dropout(x, random.uniform(-1, 0.5)) * random.random()
    except ValueError as e:
        return str(e), random.random()


@table.snippet(calls=5, max_graphs=1)
def written_in_place(x):
    h = x * 2
    h += random.random()
    h.mul_(np.random.rand())
    return h


@table.program(calls=5, max_graphs=1)
def writes_of_pythons_beside_draws():
    held = {"lam": 0.0, "log": []}

    def fn(x):
        held["lam"] = random.random()
        held["log"].append(random.randint(2, 9))
        return x * held["lam"]

    return fn, held


@table.program(breaks=True, calls=5, recompiles=(1, 2))
def a_draw_behind_a_write_into_memory_of_others():
    buffer = torch.zeros(3)

    def fn(x):
        buffer.add_(1)
        y = x * random.random()
        buffer.mul_(0.5)
        return y, buffer.sum()

    return fn, buffer


@table.snippet(breaks=True, calls=5, recompiles=(1, 2, 3, 4))
def sizes_that_are_drawn(x):
    n = random.randint(2, 3)
    return x[:n] * 2, torch.zeros(n) + 1


@table.snippet(breaks=True, calls=5, recompiles=(1, 2, 3, 4))
def divided_by_a_draw(x):
    a = random.randint(0, 2)
    try:
        return x * (1 / a)
    except ZeroDivisionError:
        return x


@table.program(breaks=True, calls=4, recompiles=(1, 2, 3), change={2: lambda g: setattr(g, "random", lambda: 0.25)})
def a_generator_with_a_function_of_its_own():
    own = random.Random(4)
    return lambda x: x * own.uniform(1, 2) + own.gauss(0, 1), own


@table.program(calls=4, max_graphs=1)
def generators_of_numpys():
    old, new = np.random.RandomState(3), np.random.default_rng(3)
    return lambda x: (x * old.uniform(1, 2) + old.randn() + new.normal() - new.random(), old.randint(9), new.standard_normal()), None


@table.snippet(calls=4, max_graphs=1)
def beside_dropout(x):
    y = torch.nn.functional.dropout(x * random.random(), 0.5)
    return y + torch.rand(3) * random.random()


@table.snippet(calls=4, max_graphs=1, breaks=True)
def in_a_generator_and_a_comprehension(x):
    def parts():
        for n in range(2):
            yield x * random.random() + n

    return sum(parts()), [x * random.gauss(0, 1) for _ in range(2)]



# What a kernel refuses, and a fake tensor does not: ``y`` gets another type, ``x`` stays as it is.
REFUSED = {
    "linear": (lambda x, y: F.linear(x, y), torch.float64),
    "linear with a bias": (lambda x, y: F.linear(x, x.new_ones(4, 4), y[0]), torch.float64),
    "mm": (lambda x, y: torch.mm(x, y), torch.float16),
    "the sign of matmul": (lambda x, y: x @ y, torch.int64),
    "bmm": (lambda x, y: torch.bmm(x[None], y[None]), torch.float64),
    "addmm": (lambda x, y: torch.addmm(y, x, x), torch.float64),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ik", x, y), torch.float64),
    "conv1d": (lambda x, y: F.conv1d(x[None], y[:, :, None]), torch.float64),
    "layer_norm": (lambda x, y: F.layer_norm(x, (4,), y[0], y[1]), torch.float64),
    "batch_norm": (lambda x, y: F.batch_norm(x, y[0], y[1] * y[1]), torch.float64),
    "prelu": (lambda x, y: F.prelu(x, y[0]), torch.float64),
    "attention": (lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None]), torch.float64),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.5), torch.float64),
    "silu": (lambda x, y: F.silu(y), torch.int64),
    "softmax": (lambda x, y: y.softmax(0), torch.int64),
    "std": (lambda x, y: y.std(), torch.int64),
    "a difference of flags": (lambda x, y: y - x, torch.bool),
    "a comparison": (lambda x, y: y < y, torch.complex64),
}


def refused(name):
    call, dtype = REFUSED[name]

    def make():
        log = []

        def fn(x, y):
            log.append("begun")
            z = x + random.random()
            return z, call(z, y)

        return fn, log

    make.__name__ = name
    table.program(
        calls=4, min_graphs=0, recompiles=(1, 2, 3), repeats=True, args=lambda place: (t(place, 4, 4), t(place + 9, 4, 4).to(dtype if place % 2 else torch.float32))
    )(make)


for each in REFUSED:
    refused(each)


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_python_random(program: Program, twin: str) -> None:
    check(program, twin)
