"""`torch.foreach`, which PyTorch has since 2.15: Python code around operators on lists of tensors, which captures run through."""

from __future__ import annotations

from typing import Any

import pytest

from tests.oracle import Table, check

foreach: Any = pytest.importorskip("torch.foreach", reason="since PyTorch 2.15", exc_type=ImportError)
table = Table()


@table.snippet()
def results(x, y):
    return foreach.add([x, y], [y, x], alpha=2), foreach.norm((x, y)), foreach.clamp_min([x, y], 0.5)


@table.snippet()
def writes(x, y):
    given = [x * 2, y * 3]
    same = foreach.mul_(given, 2.0)
    return same is given, foreach.sub_(given, [y, x])


@pytest.mark.parametrize("program", table.programs, ids=str)
def test_program(program, twin):
    check(program, twin)
