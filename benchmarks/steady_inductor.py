"""Steady-state speed with Inductor: four models through fineline and torch.compile, calls taking turns.

    python -m benchmarks.steady_inductor [--train] [--rounds 100] [--check]

Compiling takes half a minute a model; what was compiled once is taken from Inductor's disk cache afterwards.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import torch

import fineline
from benchmarks.results import save
from examples.measure import medians_ms
from examples.models import EXAMPLES, Example

NOISE = 0.97


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", action="store_true", help="forward and backward instead of inference")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--check", action="store_true", help="fail when fineline is slower than torch.compile")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {}
    print(f"{'model':<20}{'eager':>10}{'torch.compile':>15}{'fineline':>10}{'speed against torch.compile':>30}", flush=True)
    for example in EXAMPLES:
        times = medians_ms(calls(example, options.train), options.rounds)
        times["speed"] = times["torch.compile"] / times["fineline"]
        results[example.name] = times
        row = f"{example.name:<20}{times['eager']:>7.2f} ms{times['torch.compile']:>12.2f} ms{times['fineline']:>7.2f} ms"
        print(f"{row}{times['speed']:>29.2f}x", flush=True)
    save("steady_inductor_train" if options.train else "steady_inductor", results)
    return 1 if options.check and any(times["speed"] < NOISE for times in results.values()) else 0


def calls(example: Example, train: bool) -> dict[str, Callable[[], Any]]:
    """One function for each contestant, each with an instance of its own."""
    return {
        "eager": step(example.build(), example, train),
        "torch.compile": step(torch.compile(example.build(), backend="inductor"), example, train),
        "fineline": step(fineline.compile(example.build(), backend="inductor"), example, train),
    }


def step(model: Any, example: Example, train: bool) -> Callable[[], Any]:
    inputs = example.inputs(0)
    if not train:
        return torch.no_grad()(lambda: model(**inputs))
    parameters = list(model.parameters())

    def forward_and_backward() -> None:
        out = model(**inputs)
        loss = out.logits.pow(2).mean() if out.loss is None else out.loss
        loss.backward()
        for parameter in parameters:
            parameter.grad = None

    return forward_and_backward


if __name__ == "__main__":
    sys.exit(main())
