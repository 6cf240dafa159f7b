"""How the functions of heapq move an item in a heap: unlike the library's own Python versions, C exchanges items, so that an error leaves all in the heap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any


def _move_to_root(heap: list[Any], start: int, at: int, largest: bool) -> None:
    size = len(heap)
    while at > start:
        parent = (at - 1) >> 1
        before = heap[parent] < heap[at] if largest else heap[at] < heap[parent]
        _check_size(heap, size)
        if not before:
            break
        heap[parent], heap[at] = heap[at], heap[parent]
        at = parent


def _move_to_leaf(heap: list[Any], at: int, largest: bool) -> None:
    size, start = len(heap), at
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size:
            before = heap[child + 1] < heap[child] if largest else heap[child] < heap[child + 1]
            _check_size(heap, size)
            if not before:
                child += 1
        heap[child], heap[at] = heap[at], heap[child]
        at = child
    _move_to_root(heap, start, at, largest)


def _check_size(heap: list[Any], size: int) -> None:
    if len(heap) != size:
        raise RuntimeError("list changed size during iteration")


# By the names that the library's functions know them by. ``_max``: the heap has its largest item first.
MOVES: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "_siftdown": lambda heap, start, at: _move_to_root(heap, start, at, False),
        "_siftup": lambda heap, at: _move_to_leaf(heap, at, False),
        "_siftdown_max": lambda heap, start, at: _move_to_root(heap, start, at, True),
        "_siftup_max": lambda heap, at: _move_to_leaf(heap, at, True),
    }
)
