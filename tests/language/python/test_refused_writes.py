"""Writes to attributes that C refuses, under handlers: each call meets the handler, and no call makes the write."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import enum
import fractions
import functools
import re
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from tests.oracle import Program, Step, Table, check, t

table = Table()


class Plain:
    def method(self):
        return 1


class Slotted:
    __slots__ = ("a",)

    def __init__(self):
        self.a = 1


class ReadOnly:
    @property
    def a(self):
        return 1


class Shadowed(ReadOnly):
    def __init__(self):
        self.__dict__["a"] = 2


class Failing(Exception):
    pass


class Pair(NamedTuple):
    a: int
    b: int


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1


@dataclasses.dataclass(frozen=True, slots=True)
class FrozenSlots:
    a: int = 1


class Color(enum.Enum):
    RED = 1


def counted(place: int) -> Failing:
    return Failing(place)


WRITES: dict[str, tuple[Callable[..., Any], str, Any]] = {
    "weakref": (Plain, "__weakref__", None),
    "dict of an object": (Plain, "__dict__", 5),
    "class of an object": (Plain, "__class__", 5),
    "class of another layout": (Slotted, "__class__", Plain),
    "no slot": (Slotted, "b", 1),
    "property": (ReadOnly, "a", 1),
    "property over a dict": (Shadowed, "a", 3),
    "frozen dataclass": (Frozen, "a", 2),
    "frozen dataclass, new": (Frozen, "b", 2),
    "frozen slots": (FrozenSlots, "a", 2),
    "named tuple": (lambda: Pair(1, 2), "a", 5),
    "deque": (lambda: collections.deque([1], 3), "maxlen", 4),
    "partial": (lambda: functools.partial(print), "func", print),
    "partial's arguments": (lambda: functools.partial(print, 1), "args", ()),
    "slice": (lambda: slice(1, 2), "start", 1),
    "range": (lambda: range(3), "start", 1),
    "date": (lambda: datetime.date(2020, 1, 1), "year", 2021),
    "timedelta": (lambda: datetime.timedelta(1), "days", 2),
    "fraction": (lambda: fractions.Fraction(1, 2), "numerator", 2),
    "int": (lambda: 1000, "real", 2),
    "float": (lambda: 1.5, "imag", 2),
    "text": (lambda: "text", "a", 2),
    "list": (lambda: [1], "a", 2),
    "method": (lambda: Plain().method, "a", 2),
    "method's self": (lambda: Plain().method, "__self__", 2),
    "function's closure": (lambda: (lambda k: lambda: k)(1), "__closure__", None),
    "function's name": (lambda: lambda: 1, "__name__", 3),
    "function's defaults": (lambda: lambda: 1, "__defaults__", 3),
    "class's name": (lambda: type("K", (), {}), "__name__", 3),
    "built-in class": (lambda: int, "a", 3),
    "exception's arguments": (counted, "args", 5),
    "exception's cause": (counted, "__cause__", 5),
    "exception's context": (counted, "__context__", 5),
    "exception's traceback": (counted, "__traceback__", 5),
    "StopIteration's value": (lambda: StopIteration(1), "a", 5),
    "pattern": (lambda: re.compile("a"), "pattern", "b"),
    "array": (lambda: array.array("i", [1]), "typecode", "b"),
    "enum member": (lambda: Color.RED, "value", 2),
    "enum member's name": (lambda: Color.RED, "name", "a"),
    "module's dict": (lambda: types.ModuleType("m"), "__dict__", {}),
    "namespace's dict": (lambda: types.SimpleNamespace(a=1), "__dict__", {}),
    "property's function": (lambda: property(lambda self: 1), "fget", None),
    "gradient": (lambda: t(9), "grad", 5),
    "gradient of another size": (lambda: t(9, 2), "grad", t(8, 3)),
    "requires_grad": (lambda: t(9), "requires_grad", "a"),
    "leaf": (lambda: t(9), "is_leaf", 1),
    "grad_fn": (lambda: t(9), "grad_fn", 1),
    "dtype": (lambda: t(9), "dtype", torch.int64),
    "imaginary part": (lambda: t(9), "imag", t(8)),
    "parameter": (lambda: torch.nn.Linear(1, 1), "weight", 3),
    "lock": (threading.Lock, "a", 3),
}  # fmt: skip


def writes(name: str, how: Callable[..., Any], outcome: Any) -> None:
    make_object, attribute, value = WRITES[name]

    def make():
        log: list = []

        def fn(x, o):
            log.append("begun")
            try:
                how(o, attribute, value)
            except Exception as e:
                log.append(type(e).__name__)
                return x + 1, str(e)
            finally:
                log.append("left")
            return x * 2, "written"

        return fn, log

    def args(place: int) -> tuple[Any, ...]:
        return t(place), make_object(place) if make_object is counted else make_object()

    make.__name__ = f"{outcome} {name}"
    steps = [Step(place, args) for place in range(4)]
    table.programs.append(Program(make.__name__, make, steps, recompiles=frozenset({1, 2, 3}), breaks=True, min_graphs=0, backward=False, repeats=True))


def set_it(o, name, value):
    setattr(o, name, value)


def delete_it(o, name, value):
    delattr(o, name)


for each in WRITES:
    writes(each, set_it, "setting")
    writes(each, delete_it, "deleting")


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_refused_writes(program: Program, twin: str) -> None:
    check(program, twin)
