"""Counts what fineline and torch.compile capture: programs over all kinds of tensors, and the zoo's models.

    python -m benchmarks.coverage [--programs "TwoTensor,NumPy"] [--calls 3] [--no-zoo] [--check] [--table]

Each program runs in fresh processes, once for each front end, with a backend that only counts. *Captured*: the operators of the graphs
that the last call runs. *Eager*: those that it runs outside of graphs, as PyTorch's profiler sees them, but for the backward pass. *Graphs*:
all that the backend is given in all calls. A program with processes of its own is started by torchrun; the first one counts.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch

import fineline
from benchmarks.coverage_programs import PROGRAMS, Program, zoo_model, zoo_names
from benchmarks.results import ROOT, load, save

COMPILERS: dict[str, Any] = {"fineline": fineline.compile, "torch": torch.compile}
GRAPH = "benchmarks.coverage: a graph"
# Operators that torch.compile's graphs may have more: FX nodes count calls of Python functions on numbers too.
ALLOWED = 0.02


@dataclass
class Counted:
    """What one front end made of one program."""

    graphs: int = 0
    captured: int = 0
    eager: int = 0
    error: str = ""

    def __str__(self) -> str:
        return self.error or f"{self.captured} / {self.eager} / {self.graphs}"


@dataclass
class Row:
    name: str
    fineline: Counted
    torch: Counted

    @property
    def met(self) -> bool:
        """No operator less than torch.compile captures, less 2 %, and no more graphs.

        A graph with fewer operators will do where no more of them run eagerly: it computes the same with fewer.
        """
        mine, other = self.fineline, self.torch
        if mine.error:
            return False
        if other.error:
            return True
        all_captured = mine.eager <= other.eager + other.captured * ALLOWED
        return (mine.captured >= other.captured * (1 - ALLOWED) or all_captured) and mine.graphs <= other.graphs


class CountingBackend:
    """Counts the graphs and their operators, and marks for the profiler where they run."""

    def __init__(self) -> None:
        self.counted = Counted()

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
        operators = sum(node.op.startswith("call_") for node in graph.graph.nodes)
        self.counted.graphs += operators > 0

        def run(*args: Any) -> Any:
            self.counted.captured += operators
            with torch.profiler.record_function(GRAPH):
                return graph.forward(*args)

        return run


def count(program: Program, front_end: str, calls: int) -> Counted:
    """Compiles the program and calls it, in this process."""
    torch.manual_seed(0)
    backend = CountingBackend()
    call = program.make(lambda fn: COMPILERS[front_end](fn, backend=backend))
    for _ in range(calls - 1):
        call()
    backend.counted.captured = 0
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    backend.counted.eager = eager_operators(profile.events())
    return backend.counted


def eager_operators(events: Any) -> int:
    """How many operators ran in no graph, not inside of another operator and not in the backward pass."""

    def inside(event: Any) -> bool:
        parent = event.cpu_parent
        return parent is not None and (parent.name == GRAPH or "::" in parent.name or inside(parent))

    return sum(event.name.startswith("aten::") and not inside(event) for event in events)


def counted(program: Program, front_end: str, calls: int, timeout: float) -> Counted:
    """Counts in processes of its own."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={program.processes}"] if program.processes > 1 else []
    command = [sys.executable, *launcher, "-m", "benchmarks.coverage", "--count", program.name, front_end, "--calls", str(calls)]
    try:
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ, OMP_NUM_THREADS="1"), capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Counted(error=f"more than {timeout:g} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith('{"graphs"')]
    if not lines:
        return Counted(error=failure(done.stderr))
    return Counted(**json.loads(lines[-1]))


def failure(stderr: str) -> str:
    """Returns the type of the last exception that a process shows; else its last line."""
    types = re.findall(r"^(?:\w+\.)*(\w*(?:Error|Exception))\b", stderr, re.MULTILINE)
    return types[-1] if types else (stderr.strip().splitlines() or ["no output"])[-1][:70]


def count_here(name: str, front_end: str, calls: int) -> None:
    """The process that ``counted`` starts: prints what it counted."""
    warnings.simplefilter("ignore")
    program = PROGRAMS.get(name)
    if program is None:
        assert name in zoo_names(), name
        program = zoo_model(name)
    try:
        found = count(program, front_end, calls)
    except ImportError as missing:
        found = Counted(error=f"needs {missing.name}")
    if os.environ.get("RANK", "0") == "0":
        print(json.dumps(asdict(found)), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def stored() -> list[Row]:
    return [Row(name, Counted(**mine), Counted(**other)) for name, mine, other in load("coverage") or ()]


def table(zoo: bool) -> list[str]:
    """The rows for the documents, from the last numbers; those of the zoo's models only if ``zoo``."""
    lines = ["| program (captured / eager / graphs) | fineline | torch.compile |", "|---|---|---|"]
    return lines + [f"| {row.name} | {row.fineline} | {row.torch} |" for row in stored() if zoo or row.name in PROGRAMS]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", default="", help="parts of names by comma; all unless told")
    parser.add_argument("--calls", type=int, default=3)
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--no-zoo", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail when a row captures less than torch.compile")
    parser.add_argument("--table", action="store_true", help="print the table of docs/benchmarks.md from the last numbers, and with --no-zoo that of README")
    parser.add_argument("--count", nargs=2, metavar=("PROGRAM", "FRONT_END"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.count:
        count_here(*options.count, calls=options.calls)
        return 0
    if options.table:
        print("\n".join(table(not options.no_zoo)))
        return 0
    programs = [*PROGRAMS.values(), *([] if options.no_zoo else map(zoo_model, zoo_names()))]
    wanted = [part for part in options.programs.split(",") if part]
    known, met = {row.name: row for row in stored()}, True
    print(f"{'program (captured / eager / graphs)':<45}{'fineline':>24}{'torch.compile':>24}")
    for program in programs:
        if wanted and not any(part in program.name for part in wanted):
            continue
        row = Row(program.name, *(counted(program, front_end, options.calls, options.timeout) for front_end in COMPILERS))
        print(f"{row.name:<45}{row.fineline!s:>24}{row.torch!s:>24}{'' if row.met else '   LESS'}", flush=True)
        # Saved as it grows: the whole takes a while.
        known[row.name] = row
        save("coverage", [[row.name, asdict(row.fineline), asdict(row.torch)] for row in known.values()])
        met = met and row.met
    return 0 if met or not options.check else 1


if __name__ == "__main__":
    sys.exit(main())
