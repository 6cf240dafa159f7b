"""Runs programs in one of several processes, under each engine, and writes what differs: ``torchrun … -m tests.distributed.worker FOLDER NAME …``."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

import fineline
from tests.distributed.programs import PROGRAMS, Run

# Programs that torch.compile runs too. It imports for seconds, and takes seconds for each.
RIVAL = (
    "ddp_outside", "ddp_unused_parameters", "fsdp_blocks", "functional_collectives", "tensor_parallel_layer", "dtensor_tensor_parallel",
    "dtensor_as_parameter", "dtensor_lengths", "dtensor_parallel_loss", "fsdp_mixed_precision", "dtensor_sequence_parallel",
)  # fmt: skip
# Programs of modules that are captured on fakes too, as all others are.
ON_FAKES = ("ddp_buckets", "ddp_buffers", "fsdp_blocks", "fsdp_mixed_precision")


def engine(name: str, graphs: list[int]) -> Callable[..., Any]:
    """Returns what compiles; each graph that it captures adds the number of its operators to ``graphs``."""

    def counting(gm: Any, examples: Sequence[Any]) -> Any:
        graphs.append(sum([node.op.startswith("call") for node in gm.graph.nodes]))
        return gm

    if name == "eager":
        return lambda fn, **options: fn
    if name == "rival":
        return lambda fn: torch.compile(fn, backend=counting)
    backend: Any = {"captured": counting, "fake": counting, "aot": "aot_eager"}[name]
    own = {"first_call": "compiled"} if name == "fake" else {}
    return lambda fn, **options: fineline.compile(fn, backend=backend, options={**own, **options})


def difference(a: Any, b: Any, exact: bool, where: str = "") -> str:
    """Returns where two results differ, and how; "" if they do not."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        equal = a.shape == b.shape and a.dtype == b.dtype and (torch.equal(a, b) if exact else torch.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True))
        return "" if equal else f"{where}: {a} != {b}"
    if isinstance(a, dict) and isinstance(b, dict) and a.keys() == b.keys():
        found = [difference(a[k], b[k], exact, f"{where}[{k!r}]") for k in a]
    elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        found = [difference(x, y, exact, f"{where}[{i}]") for i, (x, y) in enumerate(zip(a, b, strict=True))]
    elif isinstance(a, float) and isinstance(b, float) and not exact:
        return difference(torch.tensor(a), torch.tensor(b), exact, where)
    else:
        return "" if a == b else f"{where}: {a!r} != {b!r}"
    return next(filter(None, found), "")


def run(name: str, engine_name: str, folder: Path) -> tuple[Any, list[int]]:
    graphs: list[int] = []
    torch.manual_seed(0)
    rank, size = dist.get_rank(), dist.get_world_size()
    made = Run(engine(engine_name, graphs), rank, size, str(folder / f"{name}_{engine_name}"), graphs, engine_name != "aot")
    try:
        return PROGRAMS[name].fn(made), graphs
    except Exception:
        return traceback.format_exc(), graphs


def begin(folder: Path, name: str) -> None:
    """Makes the default group, anew if there is one; ``name``: another one each time."""
    if dist.is_initialized():
        dist.destroy_process_group()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / name), size), rank=rank, world_size=size, timeout=timedelta(seconds=60))


def engines(name: str) -> list[str]:
    """Returns the engines that run a program, besides Python."""
    fake = ["fake"] if name in ON_FAKES or not name.startswith(("ddp", "fsdp")) else []
    return ["captured", *fake, "aot", *(["rival"] if name in RIVAL else [])]


def main(folder: Path, names: Sequence[str]) -> None:
    begin(folder, "group")
    rank = int(os.environ["RANK"])
    out = folder / f"rank{rank}.jsonl"
    for name in names:
        expected, _ = run(name, "eager", folder)
        found: dict[str, Any] = {"name": name, "eager": expected if isinstance(expected, str) else ""}
        for other in engines(name):
            if PROGRAMS[name].makes_groups:
                begin(folder, f"group_{name}_{other}")
            result, graphs = run(name, other, folder)
            found[other] = {"differs": difference(expected, result, other not in ("aot", "rival")), "graphs": graphs}
        with out.open("a") as file:
            file.write(json.dumps(found) + "\n")
    begin(folder, "last")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), sys.argv[2:])
