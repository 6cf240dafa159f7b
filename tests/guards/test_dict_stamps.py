"""Writes into dicts that a shortcut table relies on: in every way that Python has, and where one dict takes another one's place."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from tests.guards.twins import Steps, Twins


class Thing:
    def __init__(self) -> None:
        self.first = 1
        self.second = 2


def stored_again(thing: Any) -> None:
    thing.second = 3
    thing.second = 2


WRITES: dict[str, Callable[[Any], object]] = {
    "attribute": lambda thing: setattr(thing, "second", 3),
    "statement": lambda thing: exec("thing.second = 3", {"thing": thing}),
    "object": lambda thing: object.__setattr__(thing, "second", 3),
    "deleted": lambda thing: delattr(thing, "second"),
    "another attribute": lambda thing: setattr(thing, "third", 3),
    "item": lambda thing: thing.__dict__.__setitem__("second", 3),
    "vars": lambda thing: vars(thing).update(second=3),
    "popped": lambda thing: thing.__dict__.pop("second"),
    "last one popped": lambda thing: thing.__dict__.popitem(),
    "cleared": lambda thing: thing.__dict__.clear(),
    "merged": lambda thing: thing.__dict__.__ior__({"second": 3}),
    "default": lambda thing: thing.__dict__.setdefault("third", 3),
    "from another": lambda thing: (thing.__dict__.clear(), thing.__dict__.update({"first": 1, "second": 3})),
    "key of another kind": lambda thing: thing.__dict__.__setitem__(7, 3),
    "initialized again": lambda thing: (delattr(thing, "second"), thing.__init__()),
    "replaced": lambda thing: setattr(thing, "__dict__", {"first": 1, "second": 3}),
    "replaced by equal": lambda thing: setattr(thing, "__dict__", {"first": 1, "second": 2}),
    "the same value": lambda thing: setattr(thing, "second", 2),
    "and back": stored_again,
}


def program() -> Twins:
    steps = Steps()
    attributes = steps.attributes(steps.get("root", payload=0), Thing)
    steps.check("eq", steps.get("key", attributes, "first"), 1)
    steps.check("eq", steps.get("key", attributes, "second"), 2)
    steps.check("absent", attributes, "third")
    return steps.twins(1)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("seen", [False, True], ids=["inline", "with_a_dict"])
def test_writes(name: str, seen: bool) -> None:
    twins, thing = program(), Thing()
    if seen:
        assert vars(thing) == {"first": 1, "second": 2}
    for _ in range(4):
        assert twins.holds(thing)
    # Twice: after the first one the table has been told, and must hear of the next all the same.
    for _ in range(2):
        WRITES[name](thing)
        for _ in range(3):
            assert twins.holds(thing) == ({"first": 1, "second": 2} == {k: v for k, v in vars(thing).items() if k != 7})
        thing.__dict__.clear()
        thing.__dict__.update(first=1, second=2)
        for _ in range(3):
            assert twins.holds(thing)


def test_a_dict_at_the_address_of_another() -> None:
    steps = Steps()
    steps.check("eq", steps.get("key", steps.get("key", steps.attributes(steps.get("root", payload=0), Thing), "first"), "value"), 1)
    twins, thing = steps.twins(1), Thing()
    reused = 0
    thing.first = {"value": 1}  # type: ignore[assignment]
    for turn in range(200):
        for _ in range(3):
            assert twins.holds(thing)
        address = id(thing.first)
        del thing.first
        thing.first = {"value": 1}  # type: ignore[assignment]
        reused += id(thing.first) == address
        if turn % 2:
            assert twins.holds(thing)
        thing.first["value"] = 2  # type: ignore[index]
        assert not twins.holds(thing)
        thing.first["value"] = 1  # type: ignore[index]
    assert reused > 0


def test_programs_that_come_and_go_share_a_dict() -> None:
    thing = Thing()
    kept: list[Twins] = []
    for turn in range(50):
        kept.append(program())
        for _ in range(3):
            assert all([twins.holds(thing) for twins in kept])
        thing.second = 3
        assert all([not twins.holds(thing) for twins in kept])
        thing.second = 2
        del kept[: turn % 3]


def test_without_a_watcher_to_be_had() -> None:
    """CPython has eight of them from 3.12 on, for all extensions together."""
    source = """
        import ctypes
        import torch  # which takes some
        add = getattr(ctypes.pythonapi, "PyDict_AddWatcher", None)
        kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
        ignored = kind(lambda *told: 0)
        for _ in range(8):
            try:
                add and add(ignored)
            except RuntimeError:
                break
        from tests.guards import test_dict_stamps as tests
        for name in tests.WRITES:
            tests.test_writes(name, False)
        tests.test_programs_that_come_and_go_share_a_dict()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(source)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
