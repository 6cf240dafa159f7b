"""Containers that hold more, less or other things at each call: their lengths vary, and what reads them whole ends up behind a graph break."""

from __future__ import annotations

import bisect
import collections
import heapq
from collections.abc import Callable
from typing import Any

import pytest
import torch

import fineline
from tests.oracle import Program, Step, check, t

CALLS = 20
# No program may be made from here on.
LEARNED = 12


class State:
    def __init__(self) -> None:
        self.log: list[Any] = []
        self.heap: list[Any] = []
        self.seen: dict[Any, Any] = {}
        self.queue: collections.deque = collections.deque()
        self.recent: collections.deque = collections.deque(maxlen=3)
        self.names: set[Any] = set()


def _pushed_and_popped(s: State, i: int) -> int:
    heapq.heappush(s.heap, -i)
    return heapq.heappop(s.heap) if len(s.heap) > 3 else 0


def _window(s: State, i: int) -> int:
    s.log.append(i)
    return s.log.pop(0) if len(s.log) > 3 else -1


def _first_time(s: State, key: Any) -> bool:
    known = key in s.names
    s.names.add(key)
    return not known


# What a call does with what the calls before it have left; -> a number.
GROWING: dict[str, Callable[[State, int], Any]] = {
    "append": lambda s, i: s.log.append(i) or 1,
    "append_and_length": lambda s, i: s.log.append(i) or len(s.log),
    "length_and_append": lambda s, i: (len(s.log), s.log.append(i))[0],
    "length_twice": lambda s, i: (len(s.log), s.log.append(i), len(s.log) * 2)[2],
    "extend_and_length": lambda s, i: s.log.extend([i, i + 1]) or len(s.log),
    "last": lambda s, i: s.log.append(i) or s.log[-1],
    "last_but_one": lambda s, i: s.log.append(i) or (s.log[-2] if len(s.log) > 1 else 0),
    "last_of_before": lambda s, i: ((s.log[-1] if s.log else 0), s.log.append(i))[0],
    "first": lambda s, i: s.log.append(i + 5) or s.log[0],
    "is_empty": lambda s, i: (0 if s.log else 1, s.log.append(i))[0],
    "is_not": lambda s, i: (not s.log, s.log.append(i))[0] + 1,
    "modulus": lambda s, i: s.log.append(i) or len(s.log) % 3,
    "sum": lambda s, i: s.log.append(i) or sum(s.log),
    "mean": lambda s, i: s.log.append(i) or sum(s.log) / len(s.log),
    "last_three": lambda s, i: s.log.append(i) or sum(s.log[-3:]),
    "greatest": lambda s, i: s.log.append(i % 5) or max(s.log),
    "contained": lambda s, i: (i // 2 in s.log, s.log.append(i))[0] + 1,
    "insert": lambda s, i: s.log.insert(0, i) or len(s.log),
    "window": _window,
    "sorted_in": lambda s, i: bisect.insort(s.log, i % 7) or len(s.log),
    "heap": lambda s, i: heapq.heappush(s.heap, (i * 7 % 11, i)) or len(s.heap),
    "heap_smallest": lambda s, i: heapq.heappush(s.heap, i) or s.heap[0],
    "heap_that_is_full": _pushed_and_popped,
    "heap_largest": lambda s, i: heapq.heappush(s.heap, i) or heapq.nlargest(1, s.heap)[0],
    "queue": lambda s, i: s.queue.append(i) or len(s.queue),
    "queue_in_and_out": lambda s, i: s.queue.append(i) or (s.queue.popleft() if len(s.queue) > 2 else 0),
    "recent": lambda s, i: s.recent.append(i) or sum(s.recent),
    "dict_length": lambda s, i: (len(s.seen), s.seen.update({i: 1}))[0],
    "set_length": lambda s, i: (len(s.names), s.names.add(i))[0],
    "set_of_seen": lambda s, i: _first_time(s, i % 4) + 1,
    "joined": lambda s, i: s.log.append(str(i)) or len(",".join(s.log)),
    "concatenated": lambda s, i: setattr(s, "log", s.log + [i]) or len(s.log),
    "copied": lambda s, i: s.log.append(i) or len(list(s.log)) + 1,
}


def program(name: str, use: Callable[[State, int], Any]) -> Program:
    def make() -> Callable:
        state = State()

        def fn(x, i):
            y = (x * 2).sin() + 1
            return (y * use(state, i)).cos()

        return fn

    steps = [Step(place, lambda place: (t(place, 4), place)) for place in range(CALLS)]
    return Program(name, make, steps, frozenset(range(LEARNED)), breaks=True, repeats=True)


@pytest.mark.parametrize("name", GROWING)
def test_containers_that_grow(name: str, twin: str) -> None:
    check(program(name, GROWING[name]), twin)


def test_the_length_is_in_the_graph() -> None:
    """No graph break is needed for it."""
    log: list[int] = []

    def fn(x):
        log.append(1)
        return x * len(log)

    compiled, x = fineline.compile(fn, backend="eager"), torch.ones(3)
    for n in range(1, 20):
        assert torch.equal(compiled(x), x * n)
    told = fineline.report(compiled)
    assert len([event for event in told.events if event.kind == "graph"]) <= 3 and not told.breaks


@pytest.mark.parametrize("values", [(2, 3), (2, 3, 4)], ids=str)
def test_few_lengths_have_a_program_each(values: tuple[int, ...]) -> None:
    """What is read whole, with two or three lengths, stays in graphs without a break."""

    def fn(x, b):
        return x * sum(b)

    compiled, x = fineline.compile(fn, backend="eager"), torch.ones(3)
    for n in values * 4:
        assert torch.equal(compiled(x, [1] * n), x * n)
    assert not fineline.report(compiled).breaks


@pytest.mark.parametrize("stop", ["n", "0, n", "0, n, 3", "n, 0, -1", "1, n + 2"])
def test_ranges_that_vary(stop: str, twin: str) -> None:
    """A loop over a range whose iterations break graphs has a few programs for all its ends."""
    space: dict[str, Any] = {}
    exec(f"def fn(x, n):\n    total = 0.0\n    for i in range({stop}):\n        total += (x * i).sum().item()\n    return total, x * total", space)
    steps = [Step(place, lambda place: (t(place, 4), 20 - 3 * place if place < 7 else place)) for place in range(12)]
    check(Program(f"range_{stop}", lambda: space["fn"], steps, frozenset(range(8)), breaks=True, backward=False), twin)
