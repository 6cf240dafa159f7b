"""Containers of numbers of which some vary: looped over, unpacked, summed, copied; and numbers that are written back."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable
from typing import Any

import torch

import fineline
from tests.oracle import t
from tests.shapes.varied import Varied, both_ways

table = Varied()


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


def keyed(reads: Callable[..., Any]) -> Callable[[], Any]:
    """A program that reads a dict of numbers, one of which is another at each call."""

    def make() -> Any:
        sizes = {"a": 3, "b": 4, "c": 0.5}
        return lambda x: reads(x, sizes), sizes

    make.__name__ = reads.__name__
    changes = {p: lambda sizes, p=p: sizes.update(b=4 + p, z=99) for p in range(6)}
    table.program(calls=6, args=lambda p: (t(p),), change=changes, recompiles=(1,))(make)
    return make


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


@sized
def a_list_that_is_looped_over_and_copied(x, sizes):
    return [x + n for n in sizes], [x * n for n in reversed([*sizes])], sizes


@sized
def a_list_that_is_indexed_and_copied(x, sizes):
    return x + sizes[1], [x * n for n in [*sizes]]


@sized
def a_list_that_is_walked_in_c(x, sizes):
    chained = [n * 2 for n in itertools.chain(sizes, reversed(sizes), itertools.islice(sizes, 1, 3))]
    return x * sum(chained), sizes + [1], sizes[1:], tuple(sizes), sorted(sizes, key=lambda n: -n), collections.deque(sizes), list(filter(None, sizes))


@sized
def a_list_that_shrinks_and_grows(x, sizes):
    x = x * sizes.pop(1)
    sizes.insert(1, 9)
    sizes.append(sizes[0] + 1)
    y = [x + n for n in sizes]
    sizes.pop()
    return y


@sized
def a_list_that_is_printed_afterwards(x, sizes):
    y = [x + n for n in sizes]
    sizes[0] += 1
    return y, [*sizes]


@fixing
def a_list_in_a_text(x, sizes):
    return x + 1, str(sizes), ",".join(map(str, sizes)), "{}".format(sizes), f"{sizes!r:>20}"


@sized
def a_part_of_a_list(x, sizes):
    return x * sizes[-2], [x + n for n in sizes[1:]], torch.ones(sizes), x.new_zeros(*sizes)


@keyed
def a_dict_that_is_looped_over(x, sizes):
    for i, (k, n) in enumerate(sizes.items()):
        x = x * n + i + len(k)
    return x, [n + 1 for n in sizes.values()], sum(sizes.values()), {k: n * 2 for k, n in sizes.items()}


@keyed
def a_dict_that_is_copied(x, sizes):
    def spread(x, a, b, **rest):
        return x * a + b, rest

    return {**sizes}, dict(sizes), sizes.copy(), spread(x, **sizes), sorted(sizes.items()), max(sizes.values()), sizes


@keyed
def a_dict_that_is_written_while_it_is_looped_over(x, sizes):
    for k, n in sizes.items():
        x = x + n
        sizes["c"] = n
        sizes[k] = n + 1
    return x, sizes


@keyed
def items_that_are_taken_out(x, sizes):
    x = x * sizes.pop("b") + sizes.pop("none", 2)
    key, last = sizes.popitem()
    return x * last, key, len(sizes)


@keyed
def what_a_dict_shows_in_a_text(x, sizes):
    y = [x * n for n in sizes.values()]
    return y, len(sizes), "b" in sizes, 99 in sizes.values(), sizes == {"a": 3}


@keyed
def an_iterator_over_items_behind_a_break(x, sizes):
    numbers = iter(sizes.items())
    _, first = next(numbers)
    fineline.graph_break()
    return x * first, [x + n for _, n in numbers]


@table.program(calls=6, args=lambda p: (t(p),), change={p: lambda held, p=p: held.update({"at": (p + 2, 3), "n": [p + 4]}) for p in range(6)}, recompiles=(1,))
def tuples_and_lists_in_a_dict():
    held = {"at": (1, 3), "n": [4], "s": 2.5}

    def fn(x):
        (_, (a, b)), (_, (n,)), (_, s) = held.items()
        return x * a + b * n - s, dict(held)

    return fn, held


@table.program(calls=6, args=lambda p: (t(p),), change={p: lambda held, p=p: held.update(n=p + 2) for p in range(6)}, recompiles=(1,))
def powers_with_a_number_that_varies():
    held = {"n": 2}

    def fn(x):
        n = held["n"]
        return pow(x, n), x**n, pow(n, 2) * x, x * 2**n, pow(x, 2), pow(0.5, n) * x

    return fn, held


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


@sized
def a_list_as_the_numbers_of_a_tensor(x, sizes):
    index = torch.tensor(sizes) % 2
    return x[index], torch.tensor(data=sizes, dtype=torch.float32), x.new_tensor(sizes), torch.as_tensor([sizes, [1, 2, 3]])


@sized
def a_list_as_the_numbers_of_a_tensor_and_written_to(x, sizes):
    first = torch.tensor(sizes)
    mine = [*sizes, 5]
    mine.append(sizes[1])
    return first + 1, torch.tensor(mine), torch.tensor((mine, mine)), x * sizes[1]


@table.program(calls=6, args=lambda p: (t(p), [p + 0.5, 2.5]), recompiles=(1,))
def a_list_of_floats_as_the_numbers_of_a_tensor():
    return lambda x, p: x.sum() + torch.tensor(p)


@table.program(calls=6, args=lambda p: (t(p), [p, 2], [p, 2] if p < 4 else ["no", 2]), recompiles=(1, 4, 5))
def a_list_that_makes_no_tensor_in_the_end():
    def fn(x, p, q):
        try:
            return x.sum() + torch.tensor(p), torch.tensor(q)
        except (TypeError, ValueError) as e:
            return str(e), x

    return fn


@table.program(calls=6, args=lambda p: (t(p), [p + 2, 3]), recompiles=(1,), breaks=True)
def a_list_as_the_numbers_of_a_tensor_behind_a_break():
    def fn(x, p):
        y = x * 2
        fineline.graph_break()
        return y + torch.tensor(p).sum()

    return fn


test_program, test_program_dynamic_from_the_start = both_ways(table)
