"""What a compiled trivial function costs over calling it plainly.

    python -m benchmarks.trivial [--check]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import fineline
from benchmarks.results import save

CALLS = 5_000
ROUNDS = 31
TARGET_NS = 1_500


def add_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def pass_on(x: torch.Tensor) -> torch.Tensor:
    return x


FRONT_ENDS: dict[str, Callable[..., Any]] = {"fineline": fineline.compile, "torch.compile": torch.compile}
CASES: dict[str, Callable[..., Any]] = {"x + 1": add_one, "x": pass_on}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when fineline costs more than 1.5 µs")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x = torch.ones(4)
    results: dict[str, float] = {}
    with torch.no_grad():
        for name, fn in CASES.items():
            calls: dict[str, Callable[..., Any]] = {key: compiler(fn, backend="eager") for key, compiler in FRONT_ENDS.items()}
            times = call_times({"plain": fn, **calls}, x)
            for key in calls:
                results[f"{name}: {key}"] = over = times[key] - times["plain"]
                print(f"{name:<8}{key:<15}{over:>9.0f} ns over the plain call ({times['plain']:.0f} ns)", flush=True)
    save("trivial", results)
    return 1 if options.check and results["x + 1: fineline"] > TARGET_NS else 0


def call_times(calls: dict[str, Callable[..., Any]], x: torch.Tensor) -> dict[str, float]:
    """Median nanoseconds of each call; batches take turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        for _ in range(3):
            call(x)
    for _ in range(ROUNDS):
        for name, call in calls.items():
            start = time.perf_counter_ns()
            for _ in range(CALLS):
                call(x)
            times[name].append((time.perf_counter_ns() - start) / CALLS)
    return {name: statistics.median(ts) for name, ts in times.items()}


if __name__ == "__main__":
    sys.exit(main())
