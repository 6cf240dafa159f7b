"""Attributes of tensors that the captured code makes, for which fakes may stand: those of a fake are none of the tensor's."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from fineline.torch_facts.names import OF_FAKES
from fineline.torch_facts.releases import static_fake
from tests.oracle import TWINS, Program, Table, check

table = Table()
# What fakes have in their own dicts, and what their class has.
NAMES = ("constant", "fake_mode", "real_tensor", "_item_memo", "fake_device", "item_memo", "from_tensor")
# AOTAutograd notes the sizes that vary in the dicts of its results.
PLAIN_DICTS = tuple([twin for twin in TWINS if twin != "aot_dynamic"])


@table.snippet()
def asked_for(x):
    y = x + 1
    return [hasattr(y, name) for name in NAMES], [getattr(y, name, 7) for name in NAMES], y


@table.snippet()
def asked_for_among_own_ones(x):
    y = x + 1
    y.mark = x * 2
    return y.mark, hasattr(y, "mark"), hasattr(y, "constant"), y


@table.snippet()
def missing(x):
    y = x * 2
    try:
        return y.fake_mode
    except AttributeError as e:
        return str(e), y


@table.snippet()
def written(x):
    y = x + 1
    y.constant = 5
    setattr(y, "fake_mode", "user")
    z = y * 2
    return y.constant, y.fake_mode, hasattr(z, "constant"), z, y


@table.snippet()
def deleted(x):
    y = x + 1
    try:
        del y.constant
    except AttributeError as e:
        return str(e), y
    return y


@table.snippet(breaks=True, twins=PLAIN_DICTS)
def dicts(x):
    y = x + 1
    before = sorted(vars(y))
    y.mark = 3
    z = y.clone()
    return before, sorted(y.__dict__), y.__dict__["mark"], len(z.__dict__), "mark" in vars(y), y


@table.snippet(breaks=True, twins=PLAIN_DICTS)
def dicts_that_are_written_into(x):
    y = x + 1
    y.__dict__["k"] = 1
    y.__dict__.update(constant=2)
    del y.__dict__["k"]
    return y.__dict__, y


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_attributes_of_results(program: Program, twin: str) -> None:
    check(program, twin)


def test_the_names_are_those_of_a_fake() -> None:
    fake = static_fake(FakeTensorMode(), torch.empty(0))
    assert {*dir(type(fake)), *vars(fake)} - {*dir(torch.Tensor)} <= OF_FAKES
