"""Measures captures without running, and symbolic ones, over the zoo, against ``torch.compile(backend="eager", dynamic=True)``.

    python -m benchmarks.dynamic [--models a,b] [--reps 3] [--check]

Each model runs in a process of its own, inference, imports warm. Cold: process CPU time of compiling and the first call of a
fresh instance, the least of ``--reps``; the front ends take turns. Warm: a call whose graph does nothing (one-graph models).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import fineline
from benchmarks.results import save
from benchmarks.zoo import ZOO, runs
from fineline.report.events import LISTENERS

FRONT_ENDS: dict[str, Callable[..., Any]] = {
    "torch": lambda fn, backend: torch.compile(fn, backend=backend, dynamic=True),
    "fake": lambda fn, backend: fineline.compile(fn, backend=backend, options={"first_call": "compiled"}),
    "symbolic": lambda fn, backend: fineline.compile(fn, backend=backend, dynamic=True),
}
# Of the issue: how much faster than torch.compile a first call is, at the median.
TARGETS = {"fake": 5.0, "symbolic": 2.5}
WARM_TARGET = 1.5
CALLS = 300
ROUNDS = 9


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="names by comma; all unless told")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--check", action="store_true", help="fail when a target is missed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.reps)))
        return 0
    print(f"{'model':<24}{'torch ms':>10}{'fake ms':>10}{'':>8}{'symbolic ms':>13}{'':>8}{'warm µs static / symbolic':>28}", flush=True)
    found = []
    for model, _ in runs(["infer"], [m for m in options.models.split(",") if m]):
        command = [sys.executable, "-m", "benchmarks.dynamic", "--one", model, "--reps", str(options.reps)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.timeout)
            found.append({"model": model, **json.loads(done.stdout.splitlines()[-1])})
        except subprocess.TimeoutExpired:
            print(f"{model:<24}did not finish", flush=True)
            continue
        except (IndexError, ValueError):
            print(f"{model:<24}failed: {done.stderr.strip().splitlines()[-1:]}", flush=True)
            continue
        print(row(found[-1]), flush=True)
        save("dynamic", found)
    met = True
    print()
    for name, target in TARGETS.items():
        ratio = statistics.median(r["torch"] / r[name] for r in found)
        met = met and ratio >= target
        print(f"cold, {name}: {ratio:.1f}x faster at the median (target {target}x)")
    warm = [r["warm_symbolic"] / r["warm_static"] for r in found if r["warm_static"] and r["warm_symbolic"]]
    if warm:
        met = met and statistics.median(warm) <= WARM_TARGET
        print(f"warm, symbolic guards: {statistics.median(warm):.2f}x the time of static ones at the median (target {WARM_TARGET}x)")
    return 0 if met or not options.check else 1


def row(r: dict[str, Any]) -> str:
    warm = f"{r['warm_static']:.1f} / {r['warm_symbolic']:.1f}" if r["warm_static"] and r["warm_symbolic"] else "–"
    said = f"  {'; '.join(r['restarts'])[:80]}" if r["restarts"] else ""
    ratios = [f"{r['torch'] / r[name]:.1f}x" for name in TARGETS]
    return f"{r['model']:<24}{r['torch']:>10.0f}{r['fake']:>10.0f}{ratios[0]:>8}{r['symbolic']:>13.0f}{ratios[1]:>8}{warm:>28}{said}"


def measure(model: str, reps: int) -> dict[str, Any]:
    """CPU milliseconds of the first calls, microseconds of warm ones, and why captures went back to real values."""
    sys.path.insert(0, str(ZOO))
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    zoo = __import__("zoo")
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {name: [] for name in FRONT_ENDS}
    restarts: dict[str, None] = {}
    heard: list[Any] = []
    LISTENERS.all = (*LISTENERS.all, heard.append)
    with torch.no_grad():
        # The first round brings what is imported on the way.
        for _ in range(reps + 1):
            for name, compiler in FRONT_ENDS.items():
                torch._dynamo.reset()
                fineline.reset()
                built = zoo.build(model)
                gc.collect()
                start = time.process_time()
                compiled = compiler(built.fn, "eager")
                compiled(*built.args, **built.kwargs)
                times[name].append((time.process_time() - start) * 1e3)
                restarts.update({f"{name}: {e.reason}": None for e in heard if e.kind == "restart"})
                heard.clear()
        warm = {f"warm_{name}": warm_call(model, zoo, dynamic) for name, dynamic in (("static", False), ("symbolic", True))}
    return {**{name: min(ts[1:]) for name, ts in times.items()}, **warm, "restarts": list(restarts)}


def warm_call(model: str, zoo: Any, dynamic: bool) -> float | None:
    """Median microseconds of a call whose one graph gives what it gave before; None where there are more graphs."""
    made: list[Any] = []

    def backend(graph: Any, _: Any) -> Callable[..., Any]:
        made.append(graph)
        kept: list[Any] = []

        def run(*args: Any) -> Any:
            if not kept:
                kept.append(graph(*args))
            return kept[0]

        return run

    built = zoo.build(model)
    compiled = fineline.compile(built.fn, backend=backend, dynamic=dynamic)
    for _ in range(3):
        compiled(*built.args, **built.kwargs)
    if len(made) != 1:
        return None
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            compiled(*built.args, **built.kwargs)
        times.append((time.perf_counter() - start) / CALLS * 1e6)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
