"""Guard programs that miss instead of failing: reads of what is not there, values of the wrong type, exceptions; and those that are refused."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch

from fineline.guards.facts import tensor_facts
from tests.guards.twins import Twins, native


class Thing:
    pass


class Slotted:
    __slots__ = ("a",)


@pytest.mark.parametrize(
    ("op", "value", "payload"),
    [
        ("key", [1], "a"), ("index", {0: 1}, 0), ("index", [1], 1), ("index", [1], -1), ("cell", 1, None), ("dict", 1, None),
        ("dict", int, None), ("member", 1, Slotted.__dict__["a"]), ("member", None, Slotted.__dict__["a"]), ("key", {}, [1]),
    ],
)  # fmt: skip
def test_reads_that_miss(op: str, value: Any, payload: Any) -> None:
    assert not Twins(1, [("root", 0, -1, 0), (op, 1, 0, payload)]).holds(value)


@pytest.mark.parametrize(
    ("op", "value", "payload"),
    [
        ("len", "ab", 2), ("keys", [1], (1,)), ("absent", [1], 1), ("function", len, (None, None, None)),
        ("tensor", 1, tensor_facts(torch.zeros(1))), ("set_eq", [1], frozenset({1})), ("storages", 1, ((0,), (0,))),
    ],
)  # fmt: skip
def test_checks_of_the_wrong_type_miss(op: str, value: Any, payload: Any) -> None:
    assert not Twins(1, [("root", 0, -1, 0), (op, -1, 0, payload)]).holds(value)


def test_a_dead_weak_reference_is_not_none() -> None:
    thing = Thing()
    twins = Twins(1, [("root", 0, -1, 0), ("weak", -1, 0, weakref.ref(thing))])
    assert twins.holds(thing)
    del thing
    assert not twins.holds(None)


@pytest.mark.parametrize("raised", [ValueError, KeyError])
def test_exceptions_are_misses(raised: type[Exception]) -> None:
    def fail(value: Any) -> bool:
        raise raised

    assert not Twins(1, [("root", 0, -1, 0), ("predicate", -1, 0, (fail, "fails"))]).holds(1)


def test_interrupts_go_through() -> None:
    def interrupt(value: Any) -> bool:
        raise KeyboardInterrupt

    twins = Twins(1, [("root", 0, -1, 0), ("predicate", -1, 0, (interrupt, "interrupts"))])
    for program in (twins.reference, twins.native):
        with pytest.raises(KeyboardInterrupt):
            program.check((1,))
        with pytest.raises(KeyboardInterrupt):
            program.failing((1,))


@pytest.mark.parametrize(
    "steps",
    [
        [("nonsense", -1, -1, None)],
        [("is", -1, 0, None)],
        [("root", 0, -1, 1)],
        [("root", 0, -1, -1)],
        [("root", 0, -1, 0), ("root", 0, -1, 0)],
        [("root", -1, -1, 0)],
        [("root", 1, -1, 0)],
        [("root", 0, -1, 0), ("same", -1, 0, 1)],
        [("root", 0, -1, 0), ("distinct", -1, -1, ((0,), (1,)))],
        [("root", 0, -1, 0), ("storages", -1, -1, ((1,), (0,)))],
    ],
)
def test_malformed_programs_are_refused(steps: list) -> None:
    twins = Twins(1, [("root", 0, -1, 0)])
    for make in (type(twins.reference), type(twins.native)):
        with pytest.raises(ValueError):
            make(1, steps, ())
        with pytest.raises(ValueError):
            make(1, [("root", 0, -1, 0)], (1,))


@pytest.mark.parametrize("step", [["root", 0, -1, 0], ("root", 0, -1), (0, 0, -1, 0), ("root", "0", -1, 0), ("root", 0, None, 0)])
def test_steps_of_other_forms_are_refused(step: Any) -> None:
    with pytest.raises(TypeError):
        native.GuardProgram(1, [step], ())


def test_registers_are_small_numbers() -> None:
    for step in (("root", 1 << 40, -1, 0), ("root", 0, -(1 << 40), 0)):
        with pytest.raises(OverflowError):
            native.GuardProgram(1, [step], ())


def test_the_number_of_roots_is_checked() -> None:
    twins = Twins(1, [("root", 0, -1, 0)])
    for program in (twins.reference, twins.native):
        assert program.n_roots == 1 and program.outputs == (0,) and program.steps == (("root", 0, -1, 0),)
        with pytest.raises(ValueError):
            program.check(())
        with pytest.raises(ValueError):
            program.failing((1, 2))
