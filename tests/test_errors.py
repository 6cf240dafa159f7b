"""Refusals: each id says what, why and what next, and an error reads well and survives pickling."""

from __future__ import annotations

import copy
import pickle
import re

import pytest

from fineline import errors
from fineline.errors import REFUSALS, BackendFailed, BadArgument, FinelineError, InternalError, RecompileLimit, Unsupported

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, FinelineError)]


@pytest.mark.parametrize("id", REFUSALS)
def test_each_entry_is_complete(id: str) -> None:
    entry = REFUSALS[id]
    assert re.fullmatch(r"FL\d{3}", id)
    assert entry.title and not entry.title.endswith(".")
    assert entry.next_step.endswith(".")
    assert id == "FL100" or entry.explanation.endswith(".")


@pytest.mark.parametrize("cls", CLASSES)
def test_each_class_has_an_id_of_the_table(cls: type[FinelineError]) -> None:
    assert cls.id in REFUSALS
    assert cls("x").refusal is REFUSALS[cls.id]


def test_the_text_says_what_where_why_and_what_next() -> None:
    error = Unsupported("print(x)", id="FL102", where="train.py:12", rule="disable mypkg.io, rules.py:3")
    lines = str(error).splitlines()
    assert lines[0] == "FL102: graph break where none is allowed: print(x)"
    assert lines[1] == "  at:   train.py:12"
    assert lines[2].startswith("  why:  The region was compiled with fullgraph=True")
    assert lines[3] == "  rule: disable mypkg.io, rules.py:3"
    assert lines[4].startswith("  next: Move this line")


def test_what_is_not_known_is_left_out() -> None:
    text = str(BackendFailed("3"))
    assert "at:" not in text and "rule:" not in text and "None" not in text


def test_a_next_step_can_be_given() -> None:
    assert str(InternalError("x", next_step="Sit down.")).endswith("next: Sit down.")


def test_a_bad_argument_is_caught_as_either_kind() -> None:
    assert issubclass(BadArgument, (TypeError,)) and issubclass(BadArgument, (ValueError,))
    assert issubclass(RecompileLimit, Unsupported) and issubclass(BackendFailed, FinelineError)


@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
def test_copies_say_the_same(again: object) -> None:
    error = BackendFailed("no", id="FL302", where="a.py:1", rule="r", next_step="n.")
    other = again(error)  # type: ignore[operator]
    assert type(other) is BackendFailed and str(other) == str(error) and other.id == "FL302"
