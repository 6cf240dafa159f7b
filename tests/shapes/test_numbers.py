"""Small programs over numbers that vary: arguments, attributes, cells, items, and what is kept from call to call."""

from __future__ import annotations

import collections
import dataclasses
import functools
import math
import operator

import pytest
import torch
import torch.nn.functional as F

import fineline
from tests.oracle import check, t
from tests.shapes.varied import SMALL, N, Varied, both_ways, from_the_start, growing

table = Varied()


@table.varied(growing)
def int_argument(x, n):
    return x * n + n // 2, torch.zeros(n), x[: n - 1]


@table.varied(growing)
def texts_that_nobody_reads(x, n):
    told = f"{x.shape[0]} rows"
    told += f" of {n + 1:3d}, " + "%d columns" % x.shape[1]
    if n < 0:
        raise ValueError(told + str(x.shape))
    return x * n, told, [repr(x.shape), str(n / 4), "{} {:>5}".format(n, x.shape[0])], {"told": told}


@table.varied(lambda n: (t(n, 2, n), n), recompiles=range(1, 6))
def texts_that_are_read(x, n):
    told = {f"size {x.shape[1]}": x + 1}
    suffix = "a" + str(n)
    return told, suffix.endswith("2"), len(f"{suffix}{n}"), f"{n}" == "12", x * n


@table.varied(lambda n: (t(n, 2, n),), breaks=True, recompiles=range(1, 6))
def texts_over_graph_breaks(x):
    told = f"{x.shape[1]}"
    told += f" {x.sum().item():.1f} {x.shape[0]}"
    x = x * 2
    x.sum().item()
    return x, told, told.split()


LARGE = (3, 4, 5, 2**62 + 4, 2**62 + 6, 2**63 - 1, 2**62, 2**63, 2**70, -(2**62), -(2**63), -(2**64))


@table.snippet(calls=12, args=lambda p: (t(p), LARGE[p]), recompiles=range(1, 12))
def numbers_beyond_those_of_sizes(x, n):
    return x + 1 if n < 2**62 + 5 else x - 1, n > -(2**62), n + 1


@table.varied(lambda n: (t(n, n, 4), n, n / 8))
def attributes_that_numbers_have(x, n, r):
    found = hasattr(n, "real"), hasattr(n, "is_integer"), hasattr(r, "is_integer"), hasattr(r, "numerator"), hasattr(n + r, "node")
    return x * n + r, found


@table.snippet(calls=4, args=lambda p: (t(2, 4, 4), (0.5, 0.25, 0.125, 0.0)[p]), recompiles=range(1, 4))
def rate_of_dropout_in_attention(x, rate):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=rate)


class Sized:
    def __init__(self, n):
        self.n, self.args, self.named = n, (n, [n]), {"a": n, "b": [n]}

    def __len__(self):
        return self.n


@table.snippet(calls=6, args=lambda p: (t(p), Sized(N[p])), recompiles=range(1, 6))
def texts_of_what_holds_numbers(x, sized):
    found = ["%s %s" % sized.args, "%(a)s" % sized.named, "%s" % sized.named, "%s" % [sized.named], "{a}".format_map(sized.named)]
    return x * 2, found, "{a} {b}".format(**sized.named), "{}".format(sized.args), f"{sized.named} {sized.args!r}", b"%d" % sized.n


@table.snippet(calls=6, args=lambda p: (t(p), Sized(N[p])), recompiles=(1,))
def lengths_that_vary(x, sized):
    return x * len(sized), operator.length_hint(sized) + 1


@table.snippet(calls=6, args=lambda p: (t(p),), kwargs=lambda p: {"k": N[p]}, recompiles=(1,))
def int_keyword(x, *, k=2):
    return x + k, k * 2


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=(1,))
def a_schedule_by_powers(x, n):
    return x * (1.0 - math.pow(n + 1, -0.8)), math.pow(n, 2), math.pow(2, n), x * min(1e-2, 1.0 / math.sqrt(n + 1))


@table.snippet(calls=6, args=lambda p: (t(p), N[p], N[p] / 2 - 3), recompiles=range(1, 6), twins=("captured", "borders", "dynamic", "fake", "aot"))
def powers_of_any_numbers(x, n, f):
    found = []
    for a, b in ((n, n), (f, 2), (f, 0.5), (f, n), (n, f), (-n, 3), (True, n), (n, True), (0, f)):
        try:
            found.append(math.pow(a, b))
        except (ValueError, OverflowError) as e:
            found.append(str(e))
    return x + 1, found


# Graphs that are traced again would be written as "-1 ** n".
@table.snippet(calls=6, args=lambda p: (t(p), N[p], t(p, N[p])), recompiles=(1,))
def signs_that_alternate(x, n, y):
    return x * (-1) ** n, y * (-1) ** (y.shape[0] + 1), (-1) ** n, (-2.5) ** n * x, 1**n


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=(1,))
def bits(x, n):
    whole = [n & 1, n | 6, n ^ 5, ~n, -n & 255, n & (n - 1), 7 & n, 7 | n, 7 ^ n, n ^ True, False | n, n & 0, (n | 1) // 2, (n ^ 3) % 4, max(n & 6, 2)]
    whole += [n << 2, n >> 1, 1 << (n & 7), 100 >> n, -100 >> n, n << (n & 3), (n & n + 1) << 1]
    whole += [operator.and_(n, 12), operator.xor(3, n), operator.lshift(n, 1), operator.invert(n), operator.index(n & 6)]
    n |= 1
    n <<= 2
    n ^= 9
    n >>= 1
    n &= 62
    return x * sum(whole), x + n, torch.zeros(1 + (n & 3)), whole


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=range(1, 6))
def floats_of_bits(x, n):
    y = x * float(n ^ 2) + (n & 3) * 0.5 + ((n | 1) + 0.25) + (n & 7) / 2 + (n ^ 1) / (n | 1) + math.sqrt(n | 8)
    y = y + (n & 3 | 4) / 0.5 + 1.5 / (n | 1) + (n | 1) / 1.5 * 2 + (n & 6) % 2.5
    return y * (0.5 + (n & 1)), round((n & 3) * 0.7), (n | 6) // 4.0, float(1 << (n & 7)), float(~n)


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=range(1, 6))
def branches_on_bits(x, n):
    x = x + 1 if n & 1 else x * 2
    return x - 3 if n >> 2 == 1 else x * 5 if n & 12 < 6 and not n & 16 else x


@table.snippet(calls=6, args=lambda p: (t(p), N[p], N[p] / 2), recompiles=range(1, 6), breaks=True)
def bits_that_there_are_none_of(x, n, r):
    found = []
    for a, b in ((1, -n), (n, -1), (n, r), (r, n), (n, "a"), ([], n)):
        for op in (operator.lshift, operator.rshift, operator.and_, operator.ixor):
            try:
                found.append(op(a, b))
            except (TypeError, ValueError) as e:
                found.append(str(e))
    return x + 1, found


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=range(1, 6), breaks=True)
def a_number_made_by_many_operators(x, n):
    for _ in range(90):
        n = (n * 31 + 7) % 1000
    return x * n


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=range(1, 6), breaks=True)
def numbers_made_by_many_operators_of_others(x, n):
    m = k = n
    for i in range(40):
        m += m // 3 + n % 7
        k = max(k // 2, n, (k + i) % 9) + 5
    return x * m, torch.zeros(k % 4 + 1)


@table.snippet(calls=3, args=lambda p: (t(p), N[p]), recompiles=(1,), options={"fullgraph": True})
def in_one_graph_whatever_operators_make_a_number(x, n):
    for _ in range(40):
        n = (n * 31 + 7) % 1000
    return x * n


KEYS = collections.Counter([100, 200])


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=(1,))
def numbers_looked_up(x, n):
    return x * n, n in KEYS, n not in {100: 1, "a": 2}, n in {300, 400}, n in frozenset(), n / 4 in KEYS, n + 100 in {1.5: 0}


@table.snippet(calls=6, args=lambda p: (t(p), (2, 3, 100, 4, 200, 100)[p]), recompiles=(1, 2, 4))
def numbers_that_are_keys(x, n):
    return x + (1 if n in KEYS else 2)


@table.snippet(calls=6, args=lambda p: (t(p), N[p]), recompiles=(1,))
def what_is_divided_by_functions(x, n):
    rate = 1 / (2 + math.cos(n)) + 1 / (1 + math.exp(-n / 8)) + 1 / math.log(n + 1) + math.tanh(n) / math.log2(n + 2)
    return x * rate, rate, 1 if math.sin(n / 100) > -1 else 2, math.log10(n) < 5, math.tan(n / 100) < 2


@table.snippet(calls=6, args=lambda p: (t(p, N[p], 2), torch.Size([N[p], 2])), recompiles=(1,))
def a_size_given(x, size):
    return x * size[0], size == x.shape, size, type(size), x.sum(0).expand(*size), size.numel(), torch.zeros(size), size[:1]


# Inductor has no code for them: each number has a program.
@table.snippet(calls=3, args=lambda p: (t(p), N[p] - 4), recompiles=(1, 2))
def powers_of_whole_numbers(x, n):
    return x * (-2) ** n, 2**n, (-3) ** (n * 2), (-1) ** n


# Inductor shifts an int of 32 bits: there are programs for numbers of their own.
@table.snippet(calls=4, args=lambda p: (t(p), (2, 3, 34, 40)[p]), recompiles=(1, 2, 3))
def powers_of_two(x, n):
    return x * 2**n


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


@table.varied_program(lambda n: (t(n),), recompiles=(1, 2))
def counter_attribute():
    class Trainer:
        step = 3

    trainer = Trainer()

    def fn(x):
        trainer.step += 1
        return x * trainer.step

    return fn, trainer


@table.varied_program(lambda n: (t(n),))
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


@table.varied_program(lambda n: (t(n),))
def counter_in_a_list():
    count = [4]

    def fn(x):
        count[0] += 1
        return x + count[0]

    return fn, count


@table.varied_program(lambda n: (t(n),))
def counter_in_a_cell():
    step = 4

    def fn(x):
        nonlocal step
        step += 1
        return x + step

    return fn


@table.varied_program(lambda n: (t(n),))
def counter_in_globals():
    space = {"step": 4, "torch": torch}
    exec("def fn(x):\n    global step\n    step += 1\n    return x * step\n", space)
    return space["fn"]


@dataclasses.dataclass
class Batch:
    x: torch.Tensor
    length: int
    scale: float = 1.0


@table.varied(lambda n: (Batch(t(n, n, 4), n, n / 4),))
def dataclass_fields(batch):
    return batch.x * batch.length * batch.scale, torch.ones(batch.length)


@table.varied(lambda n: (Batch(t(n, n, 4), n),))
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


@table.snippet(calls=7, args=lambda p: (t(p), SMALL[p]), recompiles=(1, 2, 3))
def zero_and_one_as_numbers(x, n):
    return x * n, n + 1, torch.ones(n)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_training_loop_with_a_schedule_of_learning_rates(backend: str) -> None:
    """AOTAutograd takes no such float in ``alpha=``; behind the breaks of a training step as elsewhere it is a constant then."""

    def trained(compiler):
        torch.manual_seed(0)
        net = torch.nn.Linear(4, 3)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)

        def step(x):
            optimizer.zero_grad()
            loss = net(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            schedule.step()
            return loss.detach(), optimizer.param_groups[0]["lr"]

        step = compiler(step)
        return [step(torch.full((n, 4), 0.5)) for n in N], [p.detach() for p in net.parameters()]

    torch.testing.assert_close(trained(lambda fn: fineline.compile(fn, backend=backend)), trained(lambda fn: fn))


def test_powers_of_whole_numbers_in_code_of_inductor() -> None:
    def fn(x, n):
        return x * 2**n, x * 3**n, x * (-1) ** n

    compiled, x = fineline.compile(fn), t(1)
    for n in (2, 3, 34):
        torch.testing.assert_close(compiled(x, n), fn(x, n))


# -- numbers in what is read -----------------------------------------------------------------------------------------
@table.varied(lambda n: (t(1, 4), ((n, 3), 0.5 * n)))
def numbers_in_tuples(x, sizes):
    (a, b), c = sizes
    return x * a * b + c, sizes, [sizes[0]], x.new_zeros(sizes[0]), len(sizes)


@table.varied(lambda n: (t(1, 4), (n, 7)))
def the_tuple_itself(x, size):
    held = {"size": size}
    return x * size[0], held["size"] is size, size == (6, 7), 9 in size, size, held


@table.varied_program(lambda n: (t(n),))
def one_key_of_a_dict():
    state = {"step": 100, "other": 200}

    def run(x):
        return x * state.get("step") + state.get("none", 1) + state.setdefault("step", 0)

    def fn(x):
        state["other"] += 1
        state["step"] += 1
        return run(x)

    return fn


@table.varied(growing)
def operators_as_functions(x, n):
    return operator.mul(x, n), operator.sub(n, x), functools.reduce(operator.mul, [x, n, 2]), sum([x, n])


@table.varied_program()
def module_that_notes_sizes():
    class Noting(torch.nn.Module):
        rows = 0

        def forward(self, x):
            self.rows, self.last = x.shape[0], x.shape
            self.__dict__.get("total", 0)
            return x * self.rows

    net = Noting()
    return net, net


@table.varied_program()
def dict_that_is_asked_for_another_key():
    notes = {"rows": 0, "scale": 2}

    def fn(x):
        notes["rows"] = x.shape[0]
        return x * notes.get("scale", 1) + notes.get("bias", 1)

    return fn, notes


class Steps:
    def __init__(self):
        self.at = 0
        self.weights = torch.linspace(1, 0, 31)

    def step(self, x):
        y = x * self.weights[self.at]
        self.at += 1
        return y


@table.varied_program(lambda n: (t(n, 3),))
def counter_in_a_closure_that_a_decorator_holds():
    steps = Steps()
    return torch.no_grad()(lambda x: steps.step(x)), steps


test_program, test_program_dynamic_from_the_start = both_ways(table)


@pytest.mark.parametrize("backend", ["aot", "aot_fake", "aot_dynamic"])
@pytest.mark.parametrize("name", ["bits", "floats_of_bits", "branches_on_bits"])
def test_bits_behind_aotautograd(name: str, backend: str) -> None:
    (program,) = [each for each in table.programs if each.name == name]
    check(from_the_start(program), backend)


def test_it_is_told_where_many_operators_make_a_number() -> None:
    def fn(x, n):
        for _ in range(90):
            n = (n * 31 + 7) % 1000
        return x * n

    compiled, x = fineline.compile(fn, backend="eager"), torch.ones(3)
    for n in (3, 5, 8):
        compiled(x, n)
    told = fineline.report(compiled).breaks
    assert {event.id for event in told} == {"FL452"}
    assert {event.where for event in told} == {f"{__file__}:{fn.__code__.co_firstlineno + 2}"}
    assert all("gives a number that many operators have made" in event.reason for event in told)
