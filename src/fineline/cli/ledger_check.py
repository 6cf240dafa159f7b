"""The comparison of a whole run with a ledger: what ``fineline run --ledger`` prints, writes and exits with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import click

from fineline.cli.workers import own_file
from fineline.errors import FinelineError
from fineline.ledger.comparison import compare
from fineline.ledger.file import Ledger
from fineline.ledger.findings import Findings
from fineline.ledger.outputs import FORMATS, Paths, as_text, written_text
from fineline.report.streams import write_text

# The options --ledger, --update, --ledger-format and --ledger-output.
LedgerOptions = tuple[Path | None, bool, str | None, Path | None]
_STDOUT, _STDERR = Path("-"), Path("/dev/stderr")
_ACCEPT = "run it again with --update"


def ledger_check(options: LedgerOptions, target: Callable[[Path | None], Path | None]) -> LedgerCheck | None:
    """Returns the comparison that the options ask for. ``target``: checks the path to write to."""
    path, update, form, output = options
    if path is None:
        if update or form is not None or output is not None:
            raise click.UsageError("--update, --ledger-format and --ledger-output need --ledger")
        return None
    output = target(output)
    return LedgerCheck(path.absolute(), update, form or "text", output and own_file(output))


class LedgerCheck:
    """The ledger of a run, read before the program begins. ``findings`` hears the events."""

    def __init__(self, path: Path, update: bool, form: str, output: Path | None) -> None:
        self._update, self._form, self._output = update, form, output
        self._paths = Paths()
        shown = self._paths.shown(path)
        self._ledger = Ledger.read(path, missing="" if update else f"Correct the path, or write the list: fineline run --ledger {shown} --update")
        self.findings = Findings(path.parent)

    def settle(self, failed: bool) -> int:
        """Compares or updates when the program has ended; returns the exit status. ``failed``: the program has its own status."""
        comparison = compare(self._ledger, self.findings.sorted(), whole=not failed)
        name = self._paths.shown(self._ledger.path)
        if self._update and failed:
            _say(f"{name}: not written, because the program failed\n")
        elif self._update and not _first_rank():
            _say(f"{name}: the rank 0 writes it\n")
        elif self._update:
            try:
                self._ledger.write(self._ledger.updated(comparison.findings))
            except FinelineError as e:
                _say(f"{e}\n")
                return 2
            _say(written_text(comparison, self._paths))
        else:
            text = FORMATS[self._form](comparison, self._paths, _ACCEPT)
            if self._form != "text" or self._output is not None:
                write_text(self._output or _STDOUT, text)
            if comparison.new or (self._form == "text" and self._output is None):
                _say(as_text(comparison, self._paths, _ACCEPT))
            return 1 if comparison.new else 0
        return 0


def _first_rank() -> bool:
    """Returns whether this process writes the ledger: of those that a launcher starts, one does."""
    return "LOCAL_RANK" not in os.environ or os.environ.get("RANK", "0") == "0"


def _say(text: str) -> None:
    write_text(_STDERR, f"fineline: {text}")
