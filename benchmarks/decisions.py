"""What rules cost: looking up a decision during capture, and a warm call of a region that has rules.

    python -m benchmarks.decisions [--check]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch

import fineline
from fineline import Policy
from fineline.policy.decide import Rules, rules_now

LIMIT = 1.0  # µs
REPEAT, CALLS = 30, 2000
X = torch.ones(2)


def helper(x: torch.Tensor) -> torch.Tensor:
    return x + 1


class Layer(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


LAYER = Layer()
POLICIES = {
    "an object": Policy(disable=torch.nn.Linear.forward),
    "a class": Policy(disable=torch.nn.Linear),
    "a name": Policy(disable="torch.nn.functional.dropout1d"),
    "a file": Policy(disable="torch/nn/modules/linear.py"),
    "globs": Policy(disable=["torch.distributions.*", "torch/distributions/**"], disallow=["quantized::*"]),
    "of each kind": Policy(
        disable=[torch.nn.Linear, "torch.distributions.*", "torch/distributions/**", "torch/nn/modules/linear.py"],
        forbid=[torch.Tensor.item, "torch.nn.functional.dropout1d"], disallow=[torch.sub, torch.ops.aten.nonzero], trace="torch.optim.*",
    ),
}  # fmt: skip


def per_call(fn: Callable[[], object], calls: int = CALLS) -> float:
    """µs of this process, at the median of many runs."""
    runs = []
    for _ in range(REPEAT):
        began = time.process_time()
        for _ in range(calls):
            fn()
        runs.append((time.process_time() - began) / calls * 1e6)
    return statistics.median(runs)


MET = {"a function": (helper, (X,)), "a method": (Layer.forward, (LAYER, X)), "a module": (LAYER, (X,)), "a C function": (torch.sin, (X,))}


def lookup(rules: Rules, fn: object, args: tuple) -> float:
    return per_call(lambda: rules.decide(fn, args)) - per_call(lambda: None)


def warm(policy: Policy | None) -> float:
    compiled = fineline.compile(helper, backend=lambda gm, inputs: lambda *args: args, policy=policy)
    compiled(X)
    return per_call(lambda: compiled(X))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="a missed target is an error")
    check = parser.parse_args().check
    torch.set_num_threads(1)
    slow = []
    for name, policy in POLICIES.items():
        rules = rules_now(policy)
        assert rules is not None
        took = {what: lookup(rules, *call) for what, call in MET.items()}
        middle = statistics.median(took.values())
        each = ", ".join([f"{what} {n:.2f}" for what, n in took.items()])
        print(f"a decision, rules by {name}: {middle:.2f} µs at the median (target {LIMIT}): {each}")
        slow += [name] if middle > LIMIT else []
    plain, ruled = warm(None), warm(POLICIES["of each kind"])
    print(f"a warm call: {plain:.2f} µs without rules, {ruled:.2f} µs with rules of each kind: {ruled / plain:.2f} x")
    if check and slow:
        sys.exit(f"missed: {', '.join(slow)}")


if __name__ == "__main__":
    main()
