"""Assertions for tests of programs that fineline compiles."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fineline.api import check_callable, explain, is_compiled, report
from fineline.errors import LedgerDiffers
from fineline.ledger.comparison import compare
from fineline.ledger.file import Ledger
from fineline.ledger.findings import Findings
from fineline.ledger.outputs import Paths, finding_lines
from fineline.report.events import Event


def assert_ledger(
    f: Callable, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, *, path: str | os.PathLike[str], update: bool = False
) -> None:
    """Compares the graph breaks, eager stretches and recompiles of a callable with the list in ``path``, a TOML file.

    A callable that is not compiled is captured once, as by `fineline.explain`, with ``args`` and ``kwargs``. A compiled one is called with them,
    unless they are None, and all that it has done so far is compared, recompiles included. Raises `LedgerDiffers`, which is an
    AssertionError, if something is not in the list, or is at more places than listed; entries that are not met are no failure. ``update``, or
    the environment variable FINELINE_LEDGER_UPDATE=1, writes the list instead. Raises `BadLedger` for a list that is wrong or absent. Give each
    call of `assert_ledger` a file of its own.
    """
    __tracebackhide__ = True
    update = update or os.environ.get("FINELINE_LEDGER_UPDATE", "0") not in ("", "0")
    file = Path(path).absolute()
    paths = Paths()
    shown = paths.shown(file)
    how = "update=True, FINELINE_LEDGER_UPDATE=1 in the environment, or pytest's --fineline-ledger-update"
    ledger = Ledger.read(file, missing="" if update else f"Correct the path, or write the list with {how}.")
    findings = Findings(file.parent)
    for event in _events(f, args, kwargs):
        findings.hear(event)
    found = findings.sorted()
    if update:
        ledger.write(ledger.updated(found))
        return
    comparison = compare(ledger, found)
    if comparison.new:
        lines = [line for finding in comparison.new for line in finding_lines(comparison, finding, paths)]
        text = "\n".join([f"{len(comparison.new)} of {len(found)} findings", *lines])
        raise LedgerDiffers(text, where=shown, next_step=f"Correct the code, or accept what is new: {how}, writes the list.")


def _events(f: Callable, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None) -> list[Event]:
    __tracebackhide__ = True
    check_callable(f)
    if is_compiled(f):
        if args is not None or kwargs is not None:
            f(*(args or ()), **(kwargs or {}))
        return report(f).events
    return explain(f)(*(args or ()), **(kwargs or {})).events
