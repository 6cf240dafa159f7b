"""Prints the table of docs/benchmarks.md from the numbers that the benchmarks left.

    make bench && python -m benchmarks.table
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from benchmarks.bench import Pair, stored, summary
from benchmarks.dynamic import TARGETS, WARM_TARGET
from benchmarks.results import load


def main() -> None:
    print("\n".join([*totals(), "", *models()]))


def totals() -> Iterator[str]:
    """One row for each claim."""
    yield "| what | fineline |"
    yield "|---|---|"
    pairs = stored()
    for what, found, _ in summary(pairs):
        yield f"| {what} | {found} |"
    if dynamic := load("dynamic"):
        for name, what in (("fake", "cold first call that runs the backend's code already"), ("symbolic", "cold first call with all sizes symbolic")):
            ratios = [r["torch"] / r[name] for r in dynamic]
            least, target = min(ratios), TARGETS[name]
            yield f"| {what}, median | {statistics.median(ratios):.1f}x faster (target {target:g}x); {least:.1f}x at the least |"
        warm = [r["warm_symbolic"] / r["warm_static"] for r in dynamic if r["warm_static"] and r["warm_symbolic"]]
        yield f"| warm call with symbolic guards, median | {statistics.median(warm):.2f}x one with static guards (target {WARM_TARGET}x) |"
    trivial = load("trivial")
    if trivial:
        mine, other = trivial["x + 1: fineline"], trivial["x + 1: torch.compile"]
        yield f"| compiled `x + 1` over the plain call | {mine / 1e3:.2f} µs (torch.compile {other / 1e3:.1f} µs) |"
    wrappers = load("wrapper_subclasses") or {}
    for name, times in wrappers.items():
        if name != "plain":
            mine, other = times["fineline"], times["torch.compile"]
            yield f"| warm call of a linear layer, weight: {name} | {other / mine:.1f}x cheaper: {mine:.2f} µs (torch.compile {other:.1f} µs) |"
    for name, what in (("steady_inductor", "inference"), ("steady_inductor_train", "training")):
        steady = load(name)
        if steady:
            speeds = [times["speed"] for times in steady.values()]
            text = f"{statistics.median(speeds):.2f}x torch.compile's at the median, {min(speeds):.2f}x at the least"
            yield f"| steady-state speed with Inductor, {what} | {text} |"
    memory = load("memory")
    if memory:
        yield f"| resident size after {memory['times']:,} × (compile, call, delete) | {memory['growth_mb']:+.1f} MB |"


def models() -> Iterator[str]:
    """One row for each model and mode."""
    yield "| model | mode | graphs | operators | cold, ms | | warm, µs | | equal |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for pair in stored():
        yield row(pair)


def row(pair: Pair) -> str:
    f, t = pair.fineline, pair.torch

    def both(field: str, form: str) -> str:
        return " / ".join("–" if record.get(field) is None else format(record[field], form) for record in (f, t))

    cold = "" if pair.cold is None else f"**{pair.cold:.0f}×**"
    warm = "" if pair.warm is None else f"**{pair.warm:.0f}×**"
    cells = [f["model"], f["mode"], both("graphs", "d"), both("ops", "d"), both("cold_warm_import_ms", ".0f"), cold]
    cells += [both("dispatch_us", ".1f"), warm, "yes" if pair.equal else f["status"]]
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
