"""The first calls with ``wait=False``: four models with Inductor and an empty disk cache, each call against a call of eager code.

    python -m benchmarks.waiting [--models bert,gpt,llama,t5] [--rounds 5] [--calls 10] [--check]

A row shows the first call, after which the capture begins in the background, the second, and the median and the slowest of the others, all
while a thread captures and Inductor compiles; then the seconds until that is done. Numbers are medians over the rounds, each with a fresh instance.
Eager calls run just before, on the same instance, while nothing compiles: each call is compared with their median in its own round. Aim: no call
takes more than 1.3 times as long.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
import warnings
from typing import Any

import torch

import fineline
from benchmarks.results import save
from examples.models import EXAMPLES, Example

AIM = 1.3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="", help="first letters of the models' names, by comma; all unless told")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--check", action="store_true", help="exit with status 1 where the aim is missed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    fineline.compile(torch.sin, backend="eager")(torch.ones(2))  # imports the engine
    results = {}
    print(f"{'model':<20}{'eager':>10}{'first call':>12}{'second':>9}{'others':>9}{'slowest':>9}{'compiled after':>16}", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, torch.no_grad():
        for example in EXAMPLES:
            if example.name.lower().startswith(tuple(options.models.lower().split(","))):
                os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, str(len(results)))
                results[example.name] = row = measured(example, options.rounds, options.calls)
                ratios = row["ratios"]
                line = f"{example.name:<20}{row['eager']:>7.1f} ms{ratios[0]:>11.1f}x{ratios[1]:>8.2f}x{statistics.median(ratios[2:]):>8.2f}x"
                print(f"{line}{max(ratios[2:]):>8.2f}x{row['seconds']:>14.1f} s", flush=True)
    save("waiting", results)
    return int(options.check and any([max(row["ratios"]) > AIM for row in results.values()]))


def measured(example: Example, rounds: int, calls: int) -> dict[str, Any]:
    """Returns the medians over the rounds: milliseconds of an eager call, each call of a compiled instance against it, and the seconds to compile."""
    eager, ratios, seconds = [], [], 0.0
    for turn in range(rounds):
        model, inputs = example.build(), example.inputs(0)
        for _ in range(2):
            model(**inputs)
        eager.append(statistics.median([milliseconds(model, inputs) for _ in range(calls)]))
        step = fineline.compile(model, wait=False)
        began = time.perf_counter()
        ratios.append([milliseconds(step, inputs) / eager[-1] for _ in range(calls)])
        if turn == 0:
            # The caches are empty in the first round only: the process of the others still compiles what nobody waits for any more.
            fineline.wait()
            seconds = time.perf_counter() - began
        fineline.reset()
        fineline.wait()
    return {"eager": statistics.median(eager), "ratios": [statistics.median(column) for column in zip(*ratios, strict=True)], "seconds": seconds}


def milliseconds(model: Any, inputs: dict[str, Any]) -> float:
    began = time.perf_counter()
    model(**inputs)
    return (time.perf_counter() - began) * 1e3


if __name__ == "__main__":
    sys.exit(main())
