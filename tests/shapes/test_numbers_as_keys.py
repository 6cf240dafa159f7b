"""Numbers and sizes that vary as keys, indices and formats, and floats made of them: without a graph break, a program for each value where need be."""

from __future__ import annotations

import collections
import enum
import itertools
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._ordered_set import OrderedSet

import fineline
from tests.oracle import Program, Step, check, t


class Stage(enum.Enum):
    LOW, MID, HIGH, TOP, OVER = 2, 3, 4, 5, 6


class Level(enum.IntEnum):
    LOW, MID, HIGH, TOP, OVER = 2, 3, 4, 5, 6


class Bits(enum.Flag):
    A, B, C = 1, 2, 4


Pair = collections.namedtuple("Pair", "a b")
SQUARES = {n: n * n for n in range(12)}


def _done(items: Any, method: str, *args: Any) -> list:
    getattr(items, method)(*args)
    return list(items)


KEYS: dict[str, Any] = {
    "dict_display": lambda x, n: {n: x},
    "tuple_in_a_dict_display": lambda x, n: {(n, "a"): x},
    "tuples_in_tuples": lambda x, n: list({((n,), 2): x}),
    "named_tuple": lambda x, n: list({Pair(n, 1): 1}),
    "set_display": lambda x, n: {n, 1},
    "set_comprehension": lambda x, n: {k + n for k in range(3)},
    "dict_comprehension": lambda x, n: {k + n: x for k in range(3)},
    "dict_of_pairs": lambda x, n: dict([(n, x)]),
    "set_of_a_list": lambda x, n: set([n]),
    "frozenset": lambda x, n: frozenset((n, 2)),
    "ordered_dict": lambda x, n: list(collections.OrderedDict([(n, 1)])),
    "counter": lambda x, n: collections.Counter([n, n]),
    "fromkeys": lambda x, n: dict.fromkeys([n, n + 1]),
    "union": lambda x, n: {n: x} | {9: x},
    "update": lambda x, n: _done({}, "update", {n: x}),
    "setdefault": lambda x, n: _done({}, "setdefault", n, x),
    "add": lambda x, n: _done(set(), "add", n),
    "discard": lambda x, n: sorted(_done({2, 3}, "discard", n)),
    "pop_of_a_dict": lambda x, n: dict(SQUARES).pop(n),
    "get": lambda x, n: SQUARES.get(n),
    "contains": lambda x, n: n in SQUARES,
    "enum": lambda x, n: Stage(n).name,
    "int_enum": lambda x, n: Level(n) + 0,
    "flag": lambda x, n: Bits(1 << n % 3).value,
    "insert": lambda x, n: len(_done([x, x, x, x], "insert", n, x)),
    "pop": lambda x, n: _done([1, 2, 3, 4, 5, 6, 7], "pop", n),
    "rotate": lambda x, n: _done(collections.deque([1, 2, 3, 4]), "rotate", n),
    "insert_into_a_deque": lambda x, n: _done(collections.deque([1, 2, 3, 4]), "insert", n, 0),
    "deque_with_an_end": lambda x, n: list(collections.deque([1, 2, 3, 4, 5, 6, 7], maxlen=n)),
    "islice": lambda x, n: list(itertools.islice([1, 2, 3, 4, 5, 6, 7], n)),
    "repeat": lambda x, n: list(itertools.repeat(1, n)),
    "combinations": lambda x, n: len(list(itertools.combinations(range(7), n))),
    "format_spec": lambda x, n: f"{'a':>{n}}",
    "format_spec_of_a_float": lambda x, n: f"{1.5:.{n}f}",
    "format_function": lambda x, n: format("a", f">{n}"),
    "nested_field": lambda x, n: "{:>{}}".format("a", n),
    "star_in_percent": lambda x, n: "%*d" % (n, 3),
    "ljust": lambda x, n: "a".ljust(n),
    "key_of_text": lambda x, n: {f"k{n}": 1},
}
VALUES = (2, 3, 4, 2, 6)


def of_a_number(use: Any) -> Any:
    def fn(x: torch.Tensor, n: int) -> Any:
        return x * 2, use(x, n)

    return fn


def of_a_size(use: Any) -> Any:
    def fn(x: torch.Tensor) -> Any:
        return x * 2, use(x, x.shape[0])

    return fn


ANY = frozenset(range(1, len(VALUES)))


@pytest.mark.parametrize("use", KEYS)
def test_a_number(use: str, twin: str) -> None:
    steps = [Step(place, lambda place: (t(place), VALUES[place])) for place in range(len(VALUES))]
    check(Program(use, lambda: of_a_number(KEYS[use]), steps, ANY, breaks=True), twin)


@pytest.mark.parametrize("use", KEYS)
def test_without_a_graph_break(use: str) -> None:
    steps = [Step(place, lambda place: (t(place), VALUES[place])) for place in range(len(VALUES))]
    check(Program(use, lambda: of_a_number(KEYS[use]), steps, ANY, options={"fullgraph": True}), "captured")


@pytest.mark.parametrize("use", KEYS)
def test_a_size_without_a_graph_break(use: str) -> None:
    steps = [Step(place, lambda place: (t(place, VALUES[place], 2),)) for place in range(len(VALUES))]
    check(Program(use, lambda: of_a_size(KEYS[use]), steps, ANY, options={"fullgraph": True}), "captured")


class Numbers:
    """An iterable in Python."""

    def __init__(self, *items: Any) -> None:
        self.items = items

    def __iter__(self) -> Any:
        yield from self.items


class Row(tuple):
    pass


class Group(frozenset):
    pass


class Items(list):
    pass


ITERABLES: dict[str, Any] = {
    "fromkeys": lambda: dict.fromkeys(v for v in (1, 2)),
    "fromkeys_with_a_value": lambda: dict.fromkeys(Numbers(1, 2), 3),
    "fromkeys_of_an_ordered_dict": lambda: collections.OrderedDict.fromkeys(Numbers(1, 2)),
    "counter": lambda: collections.Counter(v for v in (1, 1)),
    "counter_of_an_object": lambda: collections.Counter(Numbers("a", "b", "a")),
    "chain": lambda: list(itertools.chain(Numbers(1), Numbers(2))),
    "from_iterable": lambda: list(itertools.chain.from_iterable(Numbers(Numbers(1), [2]))),
    "from_iterable_of_a_generator": lambda: list(itertools.chain.from_iterable([v] for v in (1, 2))),
    "dict": lambda: dict(Numbers((1, 2))),
    "default_dict": lambda: collections.defaultdict(list, Numbers((1, 2))),
    "ordered_dict": lambda: collections.OrderedDict(Numbers((1, 2))),
    "deque": lambda: collections.deque(Numbers(1, 2)),
    "tuple_class": lambda: Row(Numbers(1, 2)),
    "frozenset_class": lambda: Group(Numbers(1, 2)),
    "list_class": lambda: Items(Numbers(1, 2)),
    "named_tuple": lambda: Pair._make(Numbers(1, 2)),
    "ordered_set": lambda: list(OrderedSet([1]) | OrderedSet([2])),
    "ordered_set_of_a_generator": lambda: list(OrderedSet(v for v in (2, 1, 2))),
    "sorted": lambda: sorted(Numbers(2, 1)),
    "sum": lambda: sum(Numbers(1, 2)),
    "join": lambda: ",".join(Numbers("a", "b")),
    "zip": lambda: list(zip(Numbers(1, 2), Numbers(3, 4))),
    "set_update": lambda: (lambda s: (s.update(Numbers(1, 2)), s)[1])({3}),
    "extend": lambda: (lambda s: (s.extend(Numbers(1, 2)), s)[1])([3]),
    "product": lambda: list(itertools.product(Numbers(1, 2), Numbers(3))),
}


@pytest.mark.parametrize("make", ITERABLES)
def test_what_c_reads_of_an_iterable_in_python(make: str, twin: str) -> None:
    def fn(x: torch.Tensor) -> Any:
        return x * 2 + 1, ITERABLES[make]()

    check(Program(make, lambda: fn, [Step(place, lambda place: (t(place),)) for place in range(3)], max_graphs=1), twin)


FLOATS: dict[str, Any] = {
    "remainder": lambda x, i: x * (i % 3 + 0.5),
    "remainder_as_a_float": lambda x, i: x + float(i % 3),
    "of_a_negative": lambda x, i: x * (-i % 4 * 0.5),
    "by_a_negative": lambda x, i: x * (i % -3 * 0.5),
    "divided": lambda x, i: x * ((i % 3) / 2 + 1),
    "of_a_remainder": lambda x, i: x * ((i % 5) % 3 * 0.5),
    "divmod": lambda x, i: x * (divmod(i, 3)[1] * 0.5),
    "warm_restart": lambda x, i: x - 0.1 * (1 - (i % 5) / 5) * x.sin(),
    "cosine": lambda x, i: x * (0.5 * (1 + math.cos(math.pi * (i % 10) / 10))),
    "of_a_size": lambda x, i: x.sum() * (x.shape[0] % 2 + 0.5),
    "by_a_size": lambda x, i: x * ((i % x.shape[0]) * 0.5),
    "of_a_float": lambda x, i: x * ((i * 0.5) % 1.5 + 1),
    "as_an_exponent": lambda x, i: x ** (i % 3 + 0.5),
    "half_as_an_exponent": lambda x, i: x ** (i / 2 + 0.5),
    "size_as_an_exponent": lambda x, i: x ** (x.shape[0] / 2 + 0.5),
    "alpha": lambda x, i: torch.add(x, x, alpha=i % 3 + 0.5),
    "fill": lambda x, i: torch.full((2,), (i % 3) + 0.5),
    "tensor": lambda x, i: x + torch.tensor((i % 3) + 0.5),
    "clamp": lambda x, i: x.clamp(max=i % 3 + 0.5),
    "lerp": lambda x, i: torch.lerp(x, x * 2, (i % 4) / 4),
    "slope": lambda x, i: F.leaky_relu(x, i / 20),
    "power": lambda x, i: x * 0.9 ** (i % 3),
    "least": lambda x, i: x * min(i % 3 + 0.5, 2.5),
    "shifted": lambda x, i: x * ((i << 1) * 0.5),
    "masked": lambda x, i: x * ((i & 3) * 0.5),
}


@pytest.mark.parametrize("dynamic", [None, True], ids=["by_itself", "dynamic"])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_behind_aot_autograd(name: str, dynamic: bool | None) -> None:
    fast = fineline.compile(FLOATS[name], backend="aot_eager", dynamic=dynamic)
    for i in (2, 3, 4, 7, 12, 5, 6):
        x = torch.rand(i) + 0.5
        assert torch.equal(fast(x, i), FLOATS[name](x, i))


class Rows:
    """Items, and a test of what is among them, in Python."""

    def __init__(self, items: Any) -> None:
        self.items = items

    def __getitem__(self, key: Any) -> Any:
        return None if key in (None, ...) else self.items[key] if key is not True else self

    def __setitem__(self, key: Any, value: Any) -> None:
        self.items = self.items * key + value

    def __contains__(self, key: Any) -> bool:
        return bool(key * 2 > 3)


def _written(rows: Rows, n: int) -> Any:
    rows[n] = 1
    return rows.items


HALF = 0.5
OF_OBJECTS: dict[str, Any] = {
    "read": lambda x, n: Rows(x)[n % 3],
    "written": lambda x, n: _written(Rows(x), n),
    "asked": lambda x, n: n in Rows(x),
    "ellipsis": lambda x, n: (n == ..., n != ..., n in (None, ...), n == slice(n), n != {n}),
    "another_type": lambda x, n: (n is True, n is not HALF, n is ...),
}


@pytest.mark.parametrize("use", OF_OBJECTS)
def test_methods_of_objects_get_numbers_that_vary(use: str, twin: str) -> None:
    """The second capture serves all numbers."""
    steps = [Step(place, lambda place: (t(place), VALUES[place])) for place in range(len(VALUES))]
    check(Program(use, lambda: of_a_number(OF_OBJECTS[use]), steps, frozenset({1})), twin)
