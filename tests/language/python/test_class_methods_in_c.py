"""Class methods in C that a class in Python extends: `super` gives the one in C, and its name leads to that of the class."""

from __future__ import annotations

from typing import Any

import pytest

import fineline
from tests.oracle import Program, Table, check, t

table = Table()
SEEN: list[str] = []


class Mapping(dict):
    @classmethod
    def fromkeys(cls, keys: Any, value: Any = None) -> Any:
        SEEN.append("fromkeys")
        return super().fromkeys(keys, value)


class Bytes(bytes):
    @classmethod
    def fromhex(cls, text: str) -> Any:
        SEEN.append("bytes.fromhex")
        return super().fromhex(text)


class Float(float):
    @classmethod
    def fromhex(cls, text: str) -> Any:
        SEEN.append("float.fromhex")
        return super().fromhex(text)


class Below(Float):
    pass


class Int(int):
    @classmethod
    def from_bytes(cls, *args: Any) -> Any:
        SEEN.append("from_bytes")
        return super().from_bytes(*args)


def calls(name: str, fn: Any) -> None:
    def make() -> Any:
        SEEN.clear()
        return fn, SEEN

    make.__name__ = name
    table.program(change={0: lambda _: SEEN.clear()}, max_graphs=1, options={"fullgraph": True})(make)


calls("of_a_dict", lambda x: Mapping.fromkeys("ab", x + 1))
calls("of_bytes", lambda x: x + len(Bytes.fromhex("aabb")))
calls("of_floats", lambda x: (x + float(Float.fromhex("0x1p3")), Below.fromhex("0x1p3")))
calls("of_ints", lambda x: x + int(Int.from_bytes(b"a", "big")))


@table.program(breaks=True, args=lambda k: (t(k),))
def across_a_graph_break() -> Any:
    SEEN.clear()

    def fn(x):
        keys = super(Mapping, Mapping).fromkeys
        own = super(Below, Below).fromhex
        y = x + 1
        fineline.graph_break()
        return keys("ab", y), own("0x1p3")

    return fn, SEEN


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_class_methods_in_c(program: Program, twin: str) -> None:
    check(program, twin)
