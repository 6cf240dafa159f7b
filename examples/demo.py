"""Takes four Hugging Face models through fineline and through torch.compile, and shows what each made of them.

    python -m examples.demo [--backends eager,inductor] [--models bert,gpt,llama,t5] [--lines 14]

Each row is measured in this process with imports warm; Inductor's disk cache is empty at each first call. ``overhead`` is
a warm call of a region whose graph does nothing: guards, and handing results back. In the end it writes a report on all models.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._inductor.utils import fresh_cache

import fineline
from examples.measure import Counting, equal, median_ms, null_backend, once
from examples.models import EXAMPLES, Example
from fineline.report.explain import Explanation
from fineline.report.output import write_report

REPORT = Path("build/demo_report.html")

FRONT_ENDS: dict[str, tuple[Callable[..., Any], Callable[[], None]]] = {
    "fineline": (fineline.compile, fineline.reset),
    "torch.compile": (torch.compile, torch.compiler.reset),
}
HEAD = f"  {'front end':<14}{'backend':<10}{'graphs':>7}{'operators':>11}{'first call':>12}{'a call':>10}{'overhead':>10}   equal to eager"


@dataclass
class Row:
    """One front end with one backend on one model."""

    front_end: str
    backend: str
    graphs: int | None = None
    operators: int | None = None
    first_ms: float | None = None
    call_ms: float | None = None
    overhead_us: float | None = None
    equal: bool | None = None
    error: str = ""

    def __str__(self) -> str:
        cells = f"  {self.front_end:<14}{self.backend:<10}"
        if self.error:
            return f"{cells}  failed: {self.error}"
        overhead = "" if self.overhead_us is None else f"{self.overhead_us:.1f} µs"
        verdict = "" if self.equal is None else "yes" if self.equal else "NO"
        counts = f"{_or_blank(self.graphs):>7}{_or_blank(self.operators):>11}"
        return f"{cells}{counts}{_time(self.first_ms):>12}{_time(self.call_ms):>10}{overhead:>10}   {verdict}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backends", default="eager,inductor")
    parser.add_argument("--models", default="", help="first letters of the models' names, by comma; all unless told")
    parser.add_argument("--lines", type=int, default=14, help="lines of each explanation to print")
    options = parser.parse_args()
    backends = options.backends.split(",")
    wanted = tuple(options.models.lower().split(","))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, one thread. Warming imports up ...", flush=True)
    warm_up(backends)
    started = time.time()
    rows: list[Row] = []
    explanations: list[Explanation] = []
    for example in EXAMPLES:
        if example.name.lower().startswith(wanted):
            rows += show(example, backends)
            explanations += explained(example, options.lines)
    bad = [row for row in rows if row.error or row.equal is False]
    print(f"{len(rows)} rows in {time.time() - started:.0f} s; {len(bad)} failed or differ from eager.")
    REPORT.parent.mkdir(exist_ok=True)
    write_report(REPORT, [explanation.for_page() for explanation in explanations], dict)
    print(f"What fineline captured, call by call: {REPORT.absolute()}")
    return 1 if bad else 0


def warm_up(backends: list[str]) -> None:
    """Loads what each front end and backend imports at its first use."""
    for compiler, reset in FRONT_ENDS.values():
        for backend in backends:
            compiler(_trivial, backend=backend)(torch.ones(2))
        reset()


def _trivial(x: torch.Tensor) -> torch.Tensor:
    return x.sin() + 1


def show(example: Example, backends: list[str]) -> list[Row]:
    """Measures and prints one model."""
    print(f"\n{example.name}\n{HEAD}", flush=True)
    with torch.no_grad():
        print(eager_row(example), flush=True)
        rows = []
        for backend in backends:
            for name in FRONT_ENDS:
                rows.append(measured(example, name, backend))
                print(rows[-1], flush=True)
    return rows


def eager_row(example: Example) -> Row:
    model, inputs = example.build(), example.inputs(0)
    _, first = once(lambda: model(**inputs))
    return Row("eager", "", first_ms=first, call_ms=median_ms(lambda: model(**inputs)))


def measured(example: Example, front_end: str, backend: str) -> Row:
    """A fresh instance compiled and called; an error is shown in the row, so that the rest of the table still comes."""
    row = Row(front_end, backend)
    compiler, reset = FRONT_ENDS[front_end]
    try:
        reset()
        with fresh_cache() if backend == "inductor" else contextlib.nullcontext():
            _measure(row, example, compiler)
        if backend == "eager" and row.graphs == 1:
            reset()
            row.overhead_us = _overhead_us(example, compiler)
    except Exception as error:
        row.error = f"{type(error).__name__}: {str(error).splitlines()[0][:100] if str(error) else ''}"
    return row


def _measure(row: Row, example: Example, compiler: Callable[..., Any]) -> None:
    counting = Counting()
    model, inputs, fresh = example.build(), example.inputs(0), example.inputs(1)
    compiled: list[Any] = []

    def first() -> Any:
        compiled.append(compiler(model, backend=counting if row.backend == "eager" else row.backend))
        return compiled[0](**inputs)

    _, row.first_ms = once(first)
    if row.backend == "eager":
        row.graphs, row.operators = counting.graphs, counting.operators
    row.equal = equal(compiled[0](**fresh), example.build()(**fresh))
    row.call_ms = median_ms(lambda: compiled[0](**inputs))


def _overhead_us(example: Example, compiler: Callable[..., Any]) -> float:
    compiled, inputs = compiler(example.build(), backend=null_backend), example.inputs(0)
    for _ in range(3):
        compiled(**inputs)
    return median_ms(lambda: compiled(**inputs)) * 1e3


def explained(example: Example, lines: int) -> list[Explanation]:
    """Prints what fineline captured of one model; returns the explanation, none if the capture fails."""
    print("\n  what fineline captured:")
    explanations = []
    try:
        with torch.no_grad():
            explanations.append(fineline.explain(example.build())(**example.inputs(0)))
        text = str(explanations[0])
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
    print("\n".join(f"    {line[:150]}" for line in _shortened(text.splitlines(), lines)), flush=True)
    return explanations


def _shortened(lines: list[str], limit: int) -> Iterator[str]:
    yield from lines[:limit]
    if len(lines) > limit:
        yield f"... {len(lines) - limit} more lines: print(fineline.explain(model)(**inputs))"


def _time(ms: float | None) -> str:
    if ms is None:
        return ""
    return f"{ms / 1e3:.1f} s" if ms >= 10_000 else f"{ms:.0f} ms" if ms >= 100 else f"{ms:.2f} ms"


def _or_blank(value: int | None) -> str:
    return "" if value is None else str(value)


if __name__ == "__main__":
    sys.exit(main())
