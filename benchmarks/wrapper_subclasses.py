"""What a warm call of a model costs whose weight is a tensor of a wrapper subclass, without the time of its graph.

    python -m benchmarks.wrapper_subclasses [--check]
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import fineline
from benchmarks.results import save

CALLS = 3_000
ROUNDS = 15
TARGET = 5.0
FRONT_ENDS: dict[str, Callable[..., Any]] = {"fineline": fineline.compile, "torch.compile": torch.compile}


class Once:
    """A backend whose graphs run once: later calls return the same tensors."""

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        results: list[Any] = []

        def run(*args: Any) -> Any:
            if not results:
                results.append(graph.forward(*args))
            return results[0]

        return run


def plain() -> nn.Module:
    return nn.Linear(64, 64)


def two_tensors() -> nn.Module:
    linear = nn.Linear(64, 64)
    linear.weight = nn.Parameter(TwoTensor(linear.weight.detach(), torch.randn(64, 64)))  # type: ignore[no-untyped-call]
    return linear


def int8() -> nn.Module:
    quantization = importlib.import_module("torchao.quantization")
    linear = nn.Linear(64, 64)
    quantization.quantize_(linear, quantization.Int8WeightOnlyConfig())
    return linear


MODELS: dict[str, Callable[[], nn.Module]] = {"plain": plain, "TwoTensor": two_tensors, "torchao, int8 weights": int8}


def call_time(call: Callable[[], Any]) -> float:
    """Median microseconds of a call, in CPU time of the process."""
    for _ in range(5):
        call()
    times: list[float] = []
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(CALLS):
            call()
        times.append((time.process_time() - start) / CALLS * 1e6)
    return statistics.median(times)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help=f"fail when fineline's calls are not {TARGET:g} times as cheap")
    options = parser.parse_args()
    torch.set_num_threads(1)
    x, results, met = torch.randn(8, 64), dict[str, dict[str, float]](), True
    with torch.no_grad():
        for name, make in MODELS.items():
            try:
                compiled = {key: compiler(make(), backend=Once()) for key, compiler in FRONT_ENDS.items()}
            except ImportError as missing:
                print(f"{name:<24}needs {missing.name}")
                continue
            times = results[name] = {key: call_time(lambda model=model: model(x)) for key, model in compiled.items()}
            ratio = times["torch.compile"] / times["fineline"]
            met = met and ratio >= TARGET
            print(f"{name:<24}fineline {times['fineline']:.2f} µs, torch.compile {times['torch.compile']:.2f} µs: {ratio:.1f} times as cheap", flush=True)
    save("wrapper_subclasses", results)
    return 1 if options.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
