"""Some random programs of modules, the same at each run; many more: ``python -m tests.soundness.module_fuzz``."""

from __future__ import annotations

import random

import pytest

from tests.soundness.module_fuzz import difference
from tests.soundness.module_programs import generate
from tests.soundness.module_signals import in_child


@pytest.mark.parametrize("seeds", [range(start, start + 10) for start in range(0, 60, 10)], ids=str)
def test_random_programs_of_modules(seeds: range, twin: str) -> None:
    found = [how for seed in seeds if (how := difference(generate(seed).program(), twin)) is not None]
    assert found == []


def test_a_child_goes_on_from_the_same_state() -> None:
    values: list[float] = []

    def draw() -> list[float]:
        values.append(random.random())
        return values

    found = in_child(draw)
    assert values == [] and found == draw()
