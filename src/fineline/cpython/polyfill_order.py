"""bisect and heapq in plain Python for the interpreter to run: numbers that vary are compared in the program, and so are user-defined items."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from operator import index
from typing import Any


def bisect_left(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Callable[[Any], Any] | None = None) -> int:
    low, high = _between(a, lo, hi)
    while low < high:
        middle = (low + high) // 2
        item = a[middle]
        if (item if key is None else key(item)) < x:
            low = middle + 1
        else:
            high = middle
    return low


def bisect_right(a: Any, x: Any, lo: int = 0, hi: int | None = None, *, key: Callable[[Any], Any] | None = None) -> int:
    low, high = _between(a, lo, hi)
    while low < high:
        middle = (low + high) // 2
        item = a[middle]
        if x < (item if key is None else key(item)):
            high = middle
        else:
            low = middle + 1
    return low


def _between(a: Any, lo: Any, hi: Any) -> tuple[int, int]:
    low, high = index(lo), -1 if hi is None else index(hi)
    if low < 0:
        raise ValueError("lo must be non-negative")
    # C takes -1 for no bound at all.
    return low, len(a) if high == -1 else high


def _forward(a: Any, b: Any) -> Any:
    return a < b


def _backward(a: Any, b: Any) -> Any:
    return b < a


def heap_push(heap: Any, item: Any, /) -> None:
    if type(heap) is not list:
        heapq.heappush(heap, item)
        return
    heap.append(item)
    _rise(heap, 0, len(heap) - 1, _forward)


def heap_pop(heap: Any, /) -> Any:
    return heapq.heappop(heap) if type(heap) is not list else _popped(heap, _forward)


def heap_pop_max(heap: Any, /) -> Any:
    return heapq._heappop_max(heap) if type(heap) is not list else _popped(heap, _backward)  # type: ignore[attr-defined]


def _popped(heap: list, before: Callable[[Any, Any], Any]) -> Any:
    if not heap:
        raise IndexError("index out of range")
    last = heap.pop()
    return _replaced(heap, last, before) if heap else last


def heap_replace(heap: Any, item: Any, /) -> Any:
    return heapq.heapreplace(heap, item) if type(heap) is not list else _replaced(heap, item, _forward)


def heap_replace_max(heap: Any, item: Any, /) -> Any:
    return heapq._heapreplace_max(heap, item) if type(heap) is not list else _replaced(heap, item, _backward)  # type: ignore[attr-defined]


def _replaced(heap: list, item: Any, before: Callable[[Any, Any], Any]) -> Any:
    if not heap:
        raise IndexError("index out of range")
    first, heap[0] = heap[0], item
    _sink(heap, 0, before)
    return first


def heap_push_pop(heap: Any, item: Any, /) -> Any:
    if type(heap) is not list:
        return heapq.heappushpop(heap, item)
    return _replaced(heap, item, _forward) if heap and heap[0] < item else item


def heapify(heap: Any, /) -> None:
    heapq.heapify(heap) if type(heap) is not list else _heapified(heap, _forward)


def heapify_max(heap: Any, /) -> None:
    heapq._heapify_max(heap) if type(heap) is not list else _heapified(heap, _backward)


def _heapified(heap: list, before: Callable[[Any, Any], Any]) -> None:
    for at in range(len(heap) // 2 - 1, -1, -1):
        _sink(heap, at, before)


def _rise(heap: list, start: int, at: int, before: Callable[[Any, Any], Any]) -> None:
    # Item by item, as C does it: if a comparison raises, none is lost.
    while at > start:
        parent = (at - 1) >> 1
        if not before(heap[at], heap[parent]):
            return
        heap[at], heap[parent] = heap[parent], heap[at]
        at = parent


def _sink(heap: list, at: int, before: Callable[[Any, Any], Any]) -> None:
    # Down to a leaf along the lesser children, and up again from there.
    start, end = at, len(heap)
    while at < end // 2:
        child = 2 * at + 1
        if child + 1 < end and not before(heap[child], heap[child + 1]):
            child += 1
        heap[at], heap[child] = heap[child], heap[at]
        at = child
    _rise(heap, start, at, before)
