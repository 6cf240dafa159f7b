"""Small instruments that the demo and the benchmarks share: backends that count, medians, comparison of results."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule


class Counting:
    """A backend that runs graphs eagerly and counts them and their operators."""

    def __init__(self) -> None:
        self.graphs = 0
        self.operators = 0

    def __call__(self, gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs += 1
        self.operators += sum(node.op.startswith("call_") for node in gm.graph.nodes)
        return gm.forward


def null_backend(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """A backend whose graphs do their work once and then return what they returned: what is left is the front end's overhead."""
    first: list[Any] = []

    def run(*args: Any) -> Any:
        if not first:
            first.append(gm.forward(*args))
        return first[0]

    return run


def once(call: Callable[[], Any]) -> tuple[Any, float]:
    """The result of one call, and its milliseconds."""
    gc.collect()
    start = time.perf_counter()
    result = call()
    return result, (time.perf_counter() - start) * 1e3


def median_ms(call: Callable[[], Any], least: int = 5, most: int = 300, budget: float = 0.5) -> float:
    """Median milliseconds of a call, after one that is not counted."""
    call()
    times: list[float] = []
    end = time.perf_counter() + budget
    while len(times) < least or (len(times) < most and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return statistics.median(times)


def medians_ms(calls: dict[str, Callable[[], Any]], rounds: int = 60) -> dict[str, float]:
    """Medians of several calls that take turns, so that a busy machine disturbs all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - start) * 1e3)
    return {name: statistics.median(ts) for name, ts in times.items()}


def tensors(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    """All tensors in a result: containers, model outputs and caches looked through, in a fixed order."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        return [value]
    if id(value) in seen or isinstance(value, (str, bytes, int, float, type, torch.nn.Module)) or value is None:
        return []
    seen.add(id(value))
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple)):
        parts = list(value)
    else:
        parts = [v for _, v in sorted(getattr(value, "__dict__", {}).items())]
    return [t for part in parts for t in tensors(part, seen)]


def equal(a: Any, b: Any, rtol: float = 1e-4, atol: float = 1e-5) -> bool:
    """Whether two results hold the same tensors, but for rounding."""
    left, right = tensors(a), tensors(b)
    if len(left) != len(right) or not left:
        return False
    return all(x.shape == y.shape and x.dtype == y.dtype and torch.allclose(x, y, rtol, atol) for x, y in zip(left, right, strict=True))
