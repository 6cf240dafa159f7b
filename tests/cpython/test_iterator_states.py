"""The states of iterators in C are read and set without warnings, and without a change of the user's filters."""

from __future__ import annotations

import itertools
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fineline.cpython.iterator_states import STATES_OF_ITERTOOLS, iterator_state, set_iterator_state


def advanced(it: Iterator[Any], steps: int = 1) -> Iterator[Any]:
    for _ in range(steps):
        next(it)
    return it


STATES: dict[str, Callable[[], Iterator[Any]]] = {
    "list": lambda: advanced(iter([1, 2, 3])),
    "range": lambda: advanced(iter(range(1, 9, 2))),
    "enumerate": lambda: advanced(enumerate([1, 2, 3])),
    "chain": lambda: advanced(itertools.chain([1, 2], [3])),
    "islice": lambda: advanced(itertools.islice([1, 2, 3, 4], 1, 4)),
    "cycle": lambda: advanced(itertools.islice(itertools.cycle([1, 2]), 5)),
    "product": lambda: advanced(itertools.product([1, 2], [3, 4])),
    "zip_longest": lambda: advanced(itertools.zip_longest([1, 2], [3])),
    "repeat": lambda: advanced(itertools.repeat([1], 3)),
    "an ended repeat": lambda: advanced(itertools.repeat(None, 2), 2),
}


@pytest.mark.parametrize("items", [[], [1, 2]])
def test_a_reversed_list_without_items_left_names_its_list(items: list[int]) -> None:
    it = advanced(reversed(items), len(items))
    make, (held,), state = iterator_state(it)
    assert make is reversed and held is items and state == -1
    assert next(it, None) is None


@pytest.mark.parametrize("kind", STATES)
def test_a_state_makes_the_same_iterator(kind: str) -> None:
    made = STATES[kind]()
    # C tells all that a repetition consists of.
    if type(made).__module__ == "itertools" and type(made) is not itertools.repeat and not STATES_OF_ITERTOOLS:
        with pytest.raises(TypeError):
            iterator_state(made)
        return
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("error")
        filters = [*warnings.filters]
        make, args, *state = iterator_state(made)
        new = make(*args)
        if state and state[0] is not None:
            set_iterator_state(new, state[0])
        assert warnings.filters == filters
    assert found == [] and list(new) == list(STATES[kind]())


def test_a_repetition_without_end_is_made_of_its_item() -> None:
    item = [1]
    make, args = iterator_state(itertools.repeat(item))
    assert make is itertools.repeat and len(args) == 1 and args[0] is item


def test_c_imports_what_it_needs() -> None:
    make, args = iterator_state(operator.methodcaller("sorted", key=1))
    assert make.func is operator.methodcaller and make.keywords == {"key": 1} and args == ()
