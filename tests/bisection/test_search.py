"""The searches: each finds what the fault needs, in a number of tests that grows with the logarithm of the parts."""

from __future__ import annotations

import itertools
import math

import pytest

from fineline.bisection.search import most_tests, needed_together, shortest_stretch


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 64, 1000])
def test_one_part(parts: int) -> None:
    for culprit in {0, parts // 2, parts - 1}:
        tests = []

        def shows(some: frozenset[int], culprit: int = culprit, tests: list = tests) -> bool:
            tests.append(some)
            return culprit in some

        assert needed_together(parts, shows) == [culprit]
        assert len(tests) <= math.ceil(math.log2(parts)) + 1 if parts > 1 else not tests
        assert most_tests(parts) == math.ceil(math.log2(parts))


@pytest.mark.parametrize("culprits", [{0, 5}, {3, 4}, {0, 99}, {7, 50, 99}], ids=str)
def test_parts_that_are_wrong_only_together(culprits: set[int]) -> None:
    tests = []

    def shows(some: frozenset[int]) -> bool:
        tests.append(some)
        return culprits <= some

    assert set(needed_together(100, shows)) == culprits
    assert len(tests) <= len(culprits) * 8


def test_one_of_several_that_are_each_wrong_alone() -> None:
    assert needed_together(10, lambda some: bool(some & {2, 7})) == [2]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 257])
def test_stretches(n: int) -> None:
    bounds = [3 * i for i in range(n + 1)]
    for first, last in itertools.product({0, n // 2, n - 1}, repeat=2):
        if first > last:
            continue
        tests = []

        def shows(begin: int, end: int, first: int = first, last: int = last, tests: list = tests) -> bool:
            tests.append((begin, end))
            return begin <= 3 * first and end >= 3 * (last + 1)

        assert shortest_stretch(bounds, shows) == (3 * first, 3 * (last + 1))
        assert len(tests) <= 2 * max(math.ceil(math.log2(n)), 1)
