"""Searches for the parts that a fault needs. Each test is a run, so that their number counts: it grows with the logarithm of the parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence


def needed_together(parts: int, shows: Callable[[frozenset[int]], bool]) -> list[int]:
    """Returns parts that show the fault together, and none of which may be left out; of several such sets, one.

    ``shows``: returns whether the fault shows with these parts alone; it does with all of them.
    """
    found: list[int] = []
    bound = parts
    while True:
        # The fewest parts from the start that show it, beside those that are found.
        low, high = 0, bound
        while high - low > 1:
            middle = (low + high) // 2
            if shows(frozenset([*range(middle), *found])):
                high = middle
            else:
                low = middle
        found.append(high - 1)
        bound = high - 1
        if bound == 0 or shows(frozenset(found)):
            return sorted(found)


def shortest_stretch(bounds: Sequence[int], shows: Callable[[int, int], bool]) -> tuple[int, int]:
    """Returns two of ``bounds`` between which the fault shows, and not if the stretch is shorter at one of its ends.

    ``shows``: returns whether the fault shows between two bounds; it does between the first and the last.
    """
    low, high = 0, len(bounds) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if shows(bounds[0], bounds[middle]):
            high = middle
        else:
            low = middle
    last, low = high, 0
    high = last
    while high - low > 1:
        middle = (low + high) // 2
        if shows(bounds[middle], bounds[last]):
            low = middle
        else:
            high = middle
    return bounds[low], bounds[last]


def most_tests(parts: int) -> int:
    """Returns how many tests a search for one of that many parts makes at most."""
    return max(parts - 1, 0).bit_length()
