"""Containers compared with each other that hold objects with a comparison of their own: which of these are compared, and in which order."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass

import pytest

from tests.oracle import Program, Table, captured_whole, check, t

table = Table()


@dataclass
class Config:
    n: int = 1


class Telling:
    """Equal to all others, and notes who has been asked."""

    def __init__(self, name, told):
        self.name, self.told = name, told

    def __eq__(self, other):
        self.told.append((self.name, other.name))
        return True

    __hash__ = object.__hash__


class Listed(list):
    pass


class Kept(dict):
    pass


Pair = namedtuple("Pair", "first second")


@table.program(calls=4, max_graphs=3, recompiles=(2, 3), change={2: lambda s: setattr(s[1]["d"], "n", 2), 3: lambda s: s[1].update(e=1)})
def dicts_of_data_classes():
    one, other = {"d": Config(), "n": {"deep": [Config(3)]}}, {"n": {"deep": [Config(3)]}, "d": Config()}

    def fn(x):
        y = x.sin()
        if one == other:
            y = y * 2
        return y.cos(), one != other, one == {}, {"d": Config()} == {"d": one["d"]}

    return fn, (one, other)


@table.program(max_graphs=1)
def whom_dicts_ask():
    def fn(x):
        told: list[tuple[str, str]] = []

        def made(kind, *names):
            return kind({name[1:]: Telling(name, told) for name in names})

        answers = [
            made(one, "a1", "a2") == made(other, *names)
            for one, other in (
                (dict, dict), (dict, Kept), (Kept, dict), (dict, OrderedDict), (OrderedDict, dict), (OrderedDict, OrderedDict),
                (lambda d: defaultdict(int, d), dict), (dict, lambda d: defaultdict(int, d)),
            )
            for names in (("b1", "b2"), ("b2", "b1"), ("b1",), ("b1", "b3"))
        ]  # fmt: skip
        same = made(dict, "a1")
        return x.sin().cos() + len(told), answers, told[:], same == same, same == dict(same), len(told)

    return fn


class Clearing:
    """Empties a dict when it is compared."""

    def __init__(self, d):
        self.d = d

    def __eq__(self, other):
        self.d.clear()
        return True

    __hash__ = object.__hash__


@table.program(max_graphs=1)
def dicts_that_change_while_they_are_compared():
    def fn(x):
        one, other, third = {}, {}, {}
        one.update(a=Clearing(one), b=1)
        other.update(a=0, b=2)
        third.update(a=Clearing(third), b=2)
        return x.sin().cos().exp(), one == other, one, other == third, third, other

    return fn


@table.program(max_graphs=1)
def whom_sequences_ask():
    def fn(x):
        told: list[tuple[str, str]] = []
        a, b = Telling("a", told), Telling("b", told)
        answers = [a == b for a, b in (([a], Listed([b])), (Listed([a]), [b]), ((a, 1), Pair(b, 1)), (Pair(a, 1), (b, 2)))]
        return x.sin().cos().exp(), answers, [a, 1] < Listed([b, 2]), Listed([a, 1]) <= [b, 1], (a, 3) > Pair(b, 2), [a] != Listed([b]), told

    return fn


class Mark:
    """It is compared by identity, whatever else its class says."""

    def __bool__(self):
        return False

    def __len__(self):
        return 0

    def __hash__(self):
        return 1

    def __iter__(self):
        raise AssertionError

    def __getattr__(self, name):
        raise AttributeError(name)


MARK, OTHER = Mark(), Mark()


@table.program(args=lambda place: (t(place), (MARK, OTHER, Config, MARK)[place]), calls=4, max_graphs=3, recompiles=(1, 2))
def objects_without_an_equality():
    def fn(x, key):
        same = key != MARK, [key] == [MARK], {"a": key} == {"a": 3}, key not in (Config, MARK), key == fn, key == None  # noqa: E711
        return (x.sin() if key == MARK else x.cos()), same

    return fn


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_comparisons(program: Program, twin: str) -> None:
    check(program, twin)


@pytest.mark.parametrize("program", [p for p in table.programs if not p.breaks], ids=str)
def test_in_one_graph(program: Program) -> None:
    captured_whole(program)
