"""Programs in several processes, on gloo: each gives what it gives eagerly, on each rank, and captures what it should.

All programs run in one start of the processes; each is a test.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.distributed.programs import PROGRAMS

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parent.parent.parent
# Seconds that a start with all programs may take.
LONGEST = 400
# The programs that four processes run.
IN_FOUR = (
    "ddp_buckets", "fsdp_blocks", "functional_collectives", "in_place_collectives", "tensor_parallel_layer", "ranks_that_differ",
    "dtensor_sequence_parallel", "dtensor_in_two_dimensions", "dtensor_inputs_of_other_lengths", "dtensor_embedding",
    "ddp_static_graph", "ddp_accumulation", "ddp_unused_parameters", "ddp_state_dict", "fsdp_mixed_precision", "fsdp_no_reshard",
    "fsdp_accumulation", "fsdp_state_dict", "dtensor_state_dict",
)  # fmt: skip
# How often these are captured depends on the rows that a rank has: with four processes some have none.
BY_ROWS = ("dtensor_inputs_of_other_lengths",)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], dict[str, list[dict[str, Any]]]]:
    """Returns a function that gives the results of the programs on so many processes, by program, for each rank."""
    known: dict[int, dict[str, list[dict[str, Any]]]] = {}

    def of(processes: int) -> dict[str, list[dict[str, Any]]]:
        if processes not in known:
            folder = tmp_path_factory.mktemp(f"in_{processes}")
            names = IN_FOUR if processes == 4 else PROGRAMS
            command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone", "-m", "tests.distributed.worker"]
            log = folder / "log"
            with log.open("w") as out:
                subprocess.run([*command, str(folder), *names], cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, timeout=LONGEST, check=False)
            known[processes] = found = {"": [{"log": log.read_text()[-4000:]}]}
            for rank in range(processes):
                file = folder / f"rank{rank}.jsonl"
                for line in file.read_text().splitlines() if file.exists() else ():
                    result = json.loads(line)
                    found.setdefault(result["name"], []).append(result)
        return known[processes]

    return of


def check(results: dict[str, list[dict[str, Any]]], name: str, processes: int) -> None:
    ranks = results.get(name, [])
    assert len(ranks) == processes, f"{name} did not come to its end on all ranks: {results[''][0]['log']}"
    for rank, result in enumerate(ranks):
        assert not result["eager"], f"rank {rank}: {result['eager']}"
        for engine, found in result.items():
            if engine not in ("name", "eager"):
                assert not found["differs"], f"rank {rank}, {engine}: {found['differs']}"
            if engine in ("captured", "fake") and processes == 2:
                assert found["graphs"] == PROGRAMS[name].graphs, f"rank {rank}, {engine}"
            elif engine in ("captured", "fake") and name not in BY_ROWS:
                # The operators of some depend on the number of processes.
                assert len(found["graphs"]) == len(PROGRAMS[name].graphs), f"rank {rank}, {engine}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_two_processes(results: Callable, name: str) -> None:
    check(results(2), name, 2)


@pytest.mark.parametrize("name", IN_FOUR)
def test_in_four_processes(results: Callable, name: str) -> None:
    check(results(4), name, 4)
