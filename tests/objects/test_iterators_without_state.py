"""The recipes for advanced iterators of itertools where C has no state to set (Python 3.14): the same items as with the states."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable
from typing import Any

import pytest

from fineline.cpython import polyfill_itertools as t
from fineline.objects.iterator_stand_ins import WITHOUT_STATE, recipe_of

MADE: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "chain": (lambda: t.Chain([1, 2], [], [3]), lambda: itertools.chain([1, 2], [], [3])),
    "chain of lists": (lambda: t.chain_from_iterable(t.Chain, [[1], [2, 3]]), lambda: itertools.chain.from_iterable([[1], [2, 3]])),
    "islice": (lambda: t.ISlice(range(20), 3, 12, 4), lambda: itertools.islice(range(20), 3, 12, 4)),
    "islice without end": (lambda: t.ISlice(range(7), 1, None), lambda: itertools.islice(range(7), 1, None)),
    "accumulate": (lambda: t.Accumulate([1, 2, 3]), lambda: itertools.accumulate([1, 2, 3])),
    "accumulate from": (lambda: t.Accumulate([1, 2], operator.mul, initial=5), lambda: itertools.accumulate([1, 2], operator.mul, initial=5)),
    "accumulate Nones": (lambda: t.Accumulate([None, 1], lambda a, b: b), lambda: itertools.accumulate([None, 1], lambda a, b: b)),
    "takewhile": (lambda: t.TakeWhile(bool, [1, 2, 0, 3]), lambda: itertools.takewhile(bool, [1, 2, 0, 3])),
    "dropwhile": (lambda: t.DropWhile(bool, [1, 0, 2, 0]), lambda: itertools.dropwhile(bool, [1, 0, 2, 0])),
    "cycle": (lambda: t.Cycle([1, 2, 3]), lambda: itertools.cycle([1, 2, 3])),
    "cycle of nothing": (lambda: t.Cycle([]), lambda: itertools.cycle([])),
}
# Those whose recipes are the same on all Pythons.
OTHERS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "pairwise": (lambda: t.Pairwise([1, 2, 3, 4]), lambda: itertools.pairwise([1, 2, 3, 4])),
    "product": (lambda: t.Product("ab", [1, 2, 3]), lambda: itertools.product("ab", [1, 2, 3])),
    "product of nothing": (lambda: t.Product(), lambda: itertools.product()),
    "permutations": (lambda: t.Permutations("abc"), lambda: itertools.permutations("abc")),
    "combinations": (lambda: t.Combinations("abcd", 2), lambda: itertools.combinations("abcd", 2)),
    "combinations with replacement": (
        lambda: t.CombinationsWithReplacement("abc", 2), lambda: itertools.combinations_with_replacement("abc", 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("taken", range(6))
@pytest.mark.parametrize("kind", MADE)
def test_an_advanced_iterator_is_made_anew(kind: str, taken: int) -> None:
    stand_in, real = [make() for make in MADE[kind]]
    for _ in range(taken):
        next(stand_in, None)
        next(real, None)
    recipe = WITHOUT_STATE[type(stand_in)](stand_in)
    assert recipe is not None and recipe.state == ()
    made = recipe.make(*recipe.args, **recipe.kwargs)
    assert type(made) is type(real)
    assert list(itertools.islice(made, 8)) == list(itertools.islice(real, 8))


@pytest.mark.parametrize("taken", range(8))
@pytest.mark.parametrize("kind", OTHERS)
def test_it_is_made_by_its_fields(kind: str, taken: int) -> None:
    stand_in, real = [make() for make in OTHERS[kind]]
    for _ in range(taken):
        next(stand_in, None)
        next(real, None)
    recipe = recipe_of(stand_in)
    assert recipe is not None and recipe.state == ()
    made = recipe.make(*recipe.args, **recipe.kwargs)
    assert type(made) is type(real)
    assert list(made) == list(real)


@pytest.mark.parametrize("n", range(5))
def test_arrangements_come_in_the_order_of_c(n: int) -> None:
    pool = [object() for _ in range(n)]
    for pools in ((), (pool,), (pool, "ab"), ("ab", pool), (pool, pool), ("ab", pool, pool)):
        for repeat in range(3):
            assert list(t.Product(*pools, repeat=repeat)) == list(itertools.product(*pools, repeat=repeat))
    assert list(t.Permutations(pool)) == list(itertools.permutations(pool))
    for length in range(n + 2):
        assert list(t.Permutations(pool, length)) == list(itertools.permutations(pool, length))
        assert list(t.Combinations(pool, length)) == list(itertools.combinations(pool, length))
        assert list(t.CombinationsWithReplacement(pool, length)) == list(itertools.combinations_with_replacement(pool, length))


def test_a_groupby_under_way_has_no_recipe() -> None:
    groups = t.GroupBy([1, 1, 2])
    assert WITHOUT_STATE[t.GroupBy](groups) is not None
    next(groups)
    assert WITHOUT_STATE[t.GroupBy](groups) is None
