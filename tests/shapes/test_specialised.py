"""Small programs that need the value of a size: compiled for each size, and right."""

from __future__ import annotations

import itertools

from tests.shapes.varied import Varied, both_ways

table = Varied()


@table.varied(recompiles=range(1, 6))
def loop_over_the_size(x):
    total = x[0] * 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


@table.varied(recompiles=range(1, 6))
def comprehension_over_rows(x):
    return sum([row * 2 for row in x]), list(x.unbind(0))


@table.varied(recompiles=range(1, 6))
def text_of_the_size(x):
    n = x.shape[0]
    return x * 2, f"{n} rows", str(n), repr(n), f"{n:>4}", "%d" % n, "{}".format(n), str(x.shape), repr([n]), f"{x.shape}"


@table.varied(recompiles=range(1, 6))
def dict_keyed_by_the_size(x):
    table = {5: "five", 7: "seven"}
    cache = {x.shape[0]: x + 1}
    return cache, table.get(x.shape[0]), x.shape[0] in (5, 12), {x.shape[0]}, hash(x.shape[0])


@table.varied(recompiles=range(1, 6))
def list_times_the_size(x):
    return x * 2, [0] * x.shape[0], "a" * x.shape[0], list(range(x.shape[0])), (1, 2, 3, 4, 5, 6)[: x.shape[0]]


@table.varied(recompiles=range(1, 6))
def kind_of_the_size(x):
    n = x.shape[0]
    return x * n, isinstance(n, int), type(n) is int, type(n), isinstance(n, (str, int)), n.bit_length(), hash(n), type(n).__name__


@table.varied(recompiles=range(1, 6))
def branch_both_ways(x):
    return x + 1 if x.shape[0] % 2 == 0 else x - 1


@table.varied(recompiles=range(1, 6))
def indexed_by_the_size(x):
    names = list(range(40))
    return x * names[x.shape[0]], itertools.islice, [names[x.shape[0]]]


test_program, test_program_dynamic_from_the_start = both_ways(table)
