"""A pytest session under ``--fineline-ledger``: what it hears, compares, writes and prints. It imports no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest

from fineline.errors import FinelineError
from fineline.ledger.comparison import Comparison, compare
from fineline.ledger.file import Ledger
from fineline.ledger.findings import FindingFacts, Findings
from fineline.ledger.outputs import FORMATS, Paths, as_text, written_text
from fineline.report.events import LISTENERS
from fineline.report.streams import write_text

_ACCEPT = "run it again with --fineline-ledger-update"
# The key of what a worker of pytest-xdist sends to the process that started it.
_SENT = "fineline_ledger"


class Node(Protocol):
    """A worker of pytest-xdist, as the process that has started it sees it."""

    workeroutput: dict[str, tuple[list[FindingFacts], bool]]


class SessionLedger:
    """The comparison of a session with a ledger. Each worker of pytest-xdist sends what it has found to the process that started it."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config = config
        self._update = bool(config.getoption("--fineline-ledger-update"))
        self._paths = Paths()
        output = config.getoption("--fineline-ledger-output")
        self._output = config.invocation_params.dir / output if output is not None else None
        if self._output is not None and not self._output.parent.is_dir():
            raise pytest.UsageError(f"--fineline-ledger-output: there is no folder {self._output.parent}")
        missing = "" if self._update else "Correct the path, or write the list with --fineline-ledger-update."
        try:
            self._ledger = Ledger.read(path, missing)
        except FinelineError as e:
            raise pytest.UsageError(str(e)) from None
        self._findings = Findings(path.parent)
        # Whether tests that the list is about may not have run.
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        self._partial = any("::" in arg or (config.invocation_params.dir / arg).is_file() for arg in named)
        self._text = ""
        LISTENERS.all = (*LISTENERS.all, self._findings.hear)

    def pytest_unconfigure(self) -> None:
        LISTENERS.all = tuple([hear for hear in LISTENERS.all if hear != self._findings.hear])

    def pytest_deselected(self, items: Sequence[pytest.Item]) -> None:
        self._partial = self._partial or bool(items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Node, error: object) -> None:
        """Adds what a worker of pytest-xdist has found. One that crashed has sent nothing."""
        facts, partial = getattr(node, "workeroutput", {}).get(_SENT, ([], True))
        self._findings.merge(facts)
        self._partial = self._partial or partial

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        sent = getattr(self._config, "workeroutput", None)
        if sent is not None:
            sent[_SENT] = self._findings.facts(), self._partial
            return
        whole = not self._partial and exitstatus == pytest.ExitCode.OK
        found = compare(self._ledger, self._findings.sorted(), whole)
        if self._update:
            self._write(found, session, whole)
            return
        self._text = FORMATS[self._config.getoption("--fineline-ledger-format")](found, self._paths, _ACCEPT)
        if found.new and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._output is not None:
            write_text(self._output, self._text)
            self._text = as_text(found, self._paths, _ACCEPT)

    def _write(self, found: Comparison, session: pytest.Session, whole: bool) -> None:
        try:
            self._ledger.write(self._ledger.updated(found.findings, keep=not whole))
        except FinelineError as e:
            self._text, session.exitstatus = str(e), pytest.ExitCode.USAGE_ERROR
            return
        part = "" if whole else "  entries that were not met stay, because a part of the tests has run, or some failed\n"
        self._text = written_text(found, self._paths) + part

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._text:
            terminalreporter.section("fineline ledger", "-")
            terminalreporter.write(self._text)
