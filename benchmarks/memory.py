"""Memory: regions come and go 2,000 times; a deleted model is freed at once; inference keeps no activation.

    python -m benchmarks.memory [--times 2000] [--check]
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import weakref
from pathlib import Path

import torch
from torch import nn

import fineline
from benchmarks.results import save

# 1 KB for each model that has come and gone; a model is 1 MB large. The allocator's own arenas stop growing after about 800.
ALLOWED_GROWTH_MB = 1.0
WARM_UP = 1000


class Net(nn.Module):
    """Large enough that one instance that stays behind shows: 1 MB of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(128, 128) for _ in range(16)))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.layers(x).relu()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=2000)
    parser.add_argument("--check", action="store_true", help="fail when memory grows or something stays alive")
    options = parser.parse_args()
    torch.set_num_threads(1)
    growth = compile_call_delete(options.times)
    kept = stays_alive()
    activations = activation_mb()
    print(f"resident size after {options.times} x (compile, call, delete): {growth:+.1f} MB since the {WARM_UP}th")
    print(f"models alive after their deletion, without a collection: {kept} of 20")
    print(f"activations alive after a captured inference call: {activations:.2f} MB")
    save("memory", {"times": options.times, "growth_mb": growth, "alive": kept, "activations_mb": activations})
    good = growth < ALLOWED_GROWTH_MB and kept == 0 and activations < 0.01
    return 0 if good or not options.check else 1


def compile_call_delete(times: int) -> float:
    """Growth of the resident size in MB from the end of the warm-up on."""
    x = torch.randn(4, 128)
    start = 0.0
    for i in range(times):
        compiled = fineline.compile(Net(), backend="eager")
        compiled(x)
        compiled(x)
        del compiled
        if i + 1 == WARM_UP:
            gc.collect()
            start = resident_mb()
        if (i + 1) % max(times // 10, 1) == 0:
            print(f"  {i + 1:>6}  {resident_mb():.1f} MB", flush=True)
    gc.collect()
    return resident_mb() - start


def stays_alive() -> int:
    """Of 20 compiled, called and deleted models, how many only a garbage collection would free."""
    alive = 0
    gc.collect()
    gc.disable()
    try:
        for _ in range(20):
            model = Net()
            compiled = fineline.compile(model, backend="eager")
            compiled(torch.randn(4, 128))
            gone = weakref.ref(model)
            del model, compiled
            alive += gone() is not None
    finally:
        gc.enable()
    return alive


def activation_mb() -> float:
    """Tensors that one captured inference call leaves behind besides its result."""
    model, x = Net(), torch.randn(2048, 128)
    compiled = fineline.compile(model, backend="eager")
    before = tensor_bytes()
    with torch.no_grad():
        result = compiled(x)
    left = tensor_bytes() - before - sum(t.untyped_storage().nbytes() for t in result.values())
    return left / 1e6


def tensor_bytes() -> int:
    gc.collect()
    # Asked by exact type: isinstance would make lazily imported modules load.
    found = [t for t in gc.get_objects() if type(t) in (torch.Tensor, nn.Parameter)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found if t.layout is torch.strided}
    return sum(storages.values())


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    sys.exit(main())
