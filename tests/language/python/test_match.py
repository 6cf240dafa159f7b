"""match statements: every kind of pattern."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
import torch

from tests.oracle import Program, Table, check, t

table = Table()


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


class Pair:
    __match_args__ = ("first", "second")

    def __init__(self, first: Any, second: Any) -> None:
        self.first, self.second = first, second


class Limits:
    low = 0
    high = 9


def each(f: Any, values: Any) -> list[Any]:
    return [f(value) for value in values]


@table.snippet()
def literals(x):
    def f(v):
        match v:
            case 0 | 1:
                return x
            case -1.5 | 2 + 3j:
                return x + 1
            case "a":
                return x + 2
            case True:
                return x + 3
            case None:
                return x + 4
            case b"bytes":
                return x + 5
            case _:
                return x + 6

    return each(f, (0, True, -1.5, 2 + 3j, "a", None, b"bytes", 1.0, False, object))


@table.snippet()
def captures_and_guards(x):
    def f(v):
        match v:
            case int(n) if n > 3:
                return x * n
            case float() as n:
                return x + n
            case str(s) if s.isupper():
                return x - len(s)
            case other:
                return x.sum(), other

    return each(f, (5, 2, 1.5, "AB", "ab"))


@table.snippet()
def sequences(x):
    def f(v):
        match v:
            case []:
                return "empty"
            case [one]:
                return x * one
            case [1, second]:
                return x + second
            case (first, *rest) if len(rest) == 3:
                return x + first, rest
            case [first, *_, last]:
                return x + first + last

    return each(f, ([], [3], (1, 2), [2, 2], range(4), [5, 6, 7, 8, 9]))


@table.snippet()
def sequences_are_not_strings(x):
    def f(v):
        match v:
            case [a, b]:
                return x * 2, a, b
            case _:
                return x, v

    return each(f, ("ab", b"ab", ["a", "b"], {"a": 1, "b": 2}, (1, 2)))


@table.snippet()
def mappings(x):
    def f(v):
        match v:
            case {"kind": "scale", "by": by}:
                return x * by
            case {"kind": "shift", **rest} if rest:
                return x + rest["by2"], rest
            case {"a": {"b": [_, deep]}}:
                return x + deep
            case {}:
                return len(v)

    return each(f, ({"kind": "scale", "by": 2}, {"kind": "shift", "by2": 3}, {"a": {"b": (0, 4)}}, {"z": 1}, {}))


@table.snippet()
def classes_with_match_args(x):
    def f(v):
        match v:
            case Point(0, 0):
                return x
            case Point(px, y=0):
                return x + px
            case Point(x=px, y=py):
                return x * px + py
            case Pair(Point(a), second=[b, *_]):
                return x - a - b
            case Pair():
                return "pair"

    return each(f, (Point(0, 0), Point(2), Point(3, 4), Pair(Point(1), [2, 3]), Pair(1, 2)))


@table.snippet()
def values_by_dotted_name(x):
    def f(v):
        match v:
            case Color.RED:
                return x * 2
            case Limits.low | Limits.high:
                return x + v
            case Color():
                return v.name

    return each(f, (Color.RED, 0, 9, Color.BLUE, 5))


@table.snippet()
def or_patterns_bind_the_same_names(x):
    def f(v):
        match v:
            case [("add", n)] | {"add": n} | Point(n, "add"):
                return x + n
            case ("mul" | "times") as op, n:
                return x * n, op

    return each(f, ([("add", 1)], {"add": 2}, Point(3, "add"), ("times", 4), ("div", 5)))


@table.snippet()
def builtin_classes(x):
    def f(v):
        match v:
            case bool(b):
                return x * b
            case int(i) | float(i):
                return x * i
            case list([int(i), *_]):
                return x - i
            case tuple() | set() | frozenset():
                return x, type(v)
            case dict(d):
                return len(d)

    return each(f, (True, 3, 2.5, [4, 5], ["a"], (1,), {1}, frozenset(), {}))


@table.snippet()
def tensors_as_subjects(x):
    def f(v):
        match v:
            case torch.Tensor(shape=(3, 4), dtype=torch.float32):
                return v * 2
            case torch.Tensor(ndim=1) as row:
                return row + 1
            case [torch.Tensor() as a, torch.Tensor() as b]:
                return a @ b.T

    return each(f, (x, x[0], [x, x + 1], x.double()))


@table.snippet()
def no_case_matches(x):
    y = x * 2
    match y.dim():
        case 1:
            y = y * 100
        case 3:
            y = y * 1000
    return y


@table.snippet()
def names_bound_by_failed_patterns(x):
    match (1, 2, 3):
        case (a, b, 4):
            y = x * 100
        case (a, *b):
            y = x + a
    return y, a, b


@table.snippet()
def match_args_wrong(x):
    try:
        match Point(1):
            case Point(1, 2, 3):
                return x * 100
    except TypeError as error:
        return x + 1, str(error)


class Twice:
    __match_args__: Any = ("first", "first")
    first = 1


class Unnamed(Twice):
    __match_args__ = (3,)


class Listed(Twice):
    __match_args__ = ["first"]


class Number(int):
    pass


@table.snippet()
def match_args_that_c_refuses(x):
    told = []
    for subject, cls in ((Twice(), Twice), (Unnamed(), Unnamed), (Listed(), Listed), (Number(3), Number), (True, int), (Pair(1, 2), Pair)):
        try:
            match subject:
                case cls(a, first=b):
                    told.append((a, b))
                case cls(a, b):
                    told.append((a, b))
        except TypeError as error:
            told.append(str(error))
        try:
            match subject:
                case cls(a):
                    told.append(a)
        except TypeError as error:
            told.append(str(error))
    return x + 1, told


@table.snippet()
def subject_evaluated_once(x):
    calls = []

    def subject():
        calls.append(1)
        return len(calls), x

    match subject():
        case (5, _):
            return None
        case (1, y):
            return y * 2, len(calls)


@table.snippet(args=lambda i: (t(i), [{"op": "add", "n": 1}, {"op": "add", "n": 1}, ["mul", 3], ["mul", 3]][i]), calls=4, recompiles=(2,))
def subject_is_an_argument(x, command):
    match command:
        case {"op": "add", "n": n}:
            return x + n
        case ["mul", n]:
            return x * n


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_match(program: Program, twin: str) -> None:
    check(program, twin)
