"""``fineline bisect``: runs of a whole program, each in a copy of this process, and the verdict of a check command on each."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from fineline.bisection.hunt import Bisection, Flaky, Hunt, Run, Verdict
from fineline.bisection.rules import EagerRule
from fineline.bisection.suspects import Candidate
from fineline.cli.forked_run import failure_line, run_in_copy
from fineline.cli.suspect_run import SuspectRun
from fineline.errors import BadArgument
from fineline.report.streams import write_text

_STDERR = Path("/dev/stderr")
# The shell's exit statuses for a command that it can't execute, or does not find.
_NOT_RUN = (126, 127)
# Runs before anything is narrowed down: nothing compiled, and twice everything.
FIRST_RUNS = 3


class ScriptRunner:
    """Runs the program ``what`` under ``fineline run``. ``check``: a command whose exit status says whether the run is right; None: that of the program.

    ``main``: the command line, which reads ``sys.argv``. ``log``: gets what the program and the check print.
    """

    unsteady, raised = "the check is flaky", ""

    def __init__(self, command: list[str], what: str, check: str | None, main: Callable[[], None], log: IO[bytes] | None) -> None:
        self.what = what
        self._command, self._check, self._main, self._log = command, check, main, log
        self._runs = 0

    def plan(self, text: str) -> None:
        _say(text)

    def may(self, rule: EagerRule) -> bool:
        """Returns whether a policy file may contain the rule; the program's own process knows whether there is such a name."""
        return rule.is_writable

    def run(self, candidate: Candidate, rules: Sequence[EagerRule]) -> Run:
        # Not a TemporaryDirectory: the copy would remove it when it exits.
        files = SuspectRun(Path(tempfile.mkdtemp(prefix="fineline-bisect-")))
        try:
            files.write(candidate, rules)
            self._runs += 1
            status, pid, failure = self._program(files)
            verdict = self._judged(status, failure, twice=not rules and candidate.graphs in (None, frozenset()))
            made = Run(candidate, tuple(rules), verdict, files.graphs(pid), files.ran)
        finally:
            shutil.rmtree(files.folder, ignore_errors=True)
        _say(f"run {self._runs}: {made}")
        self._note(f"== run {self._runs}: {made}\n".encode())
        return made

    def _program(self, files: SuspectRun) -> tuple[int, int, str]:
        """Runs the program; returns its exit status, the id of its process, and the line on standard error with its failure."""

        def run() -> None:
            (files.folder / "pid").write_text(str(os.getpid()))
            sys.argv = [sys.argv[0], "run", "--suspects", str(files.folder), *self._command]
            self._main()

        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
            status = run_in_copy(run, out, errors)
            texts = []
            for file in (out, errors):
                file.seek(0)
                texts.append(file.read())
        self._note(f"== run {self._runs}: the program's exit status is {status}\n".encode(), *texts)
        return status, int((files.folder / "pid").read_text()), failure_line(texts[1])

    def _judged(self, status: int, failure: str, twice: bool) -> Verdict:
        if status != 0:
            return Verdict(f"exit status {status}", f"the program's exit status is {status}" + (f": {failure}" if failure else ""))
        if self._check is None:
            return Verdict()
        answers = [self._checked() for _ in range(2 if twice else 1)]
        if answers[0] in _NOT_RUN:
            raise BadArgument(f"the check {self._check!r} can't be run: the shell's exit status is {answers[0]}", next_step="See --log, or run it by hand.")
        if len({answer == 0 for answer in answers}) > 1:
            raise Flaky(f"after one run of the program {self._check!r} ends with exit status {answers[0]}, and then with {answers[1]}")
        return Verdict("check", f"the check's exit status is {answers[0]}") if answers[0] else Verdict()

    def _checked(self) -> int:
        assert self._check is not None
        done = subprocess.run(self._check, shell=True, stdin=subprocess.DEVNULL, capture_output=True)
        self._note(f"== run {self._runs}: the check's exit status is {done.returncode}\n".encode(), done.stdout, done.stderr)
        return done.returncode

    def _note(self, *texts: bytes) -> None:
        if self._log is not None:
            for text in texts:
                self._log.write(text)
            self._log.flush()


def find(command: list[str], program: str, check: str | None, main: Callable[[], None], log: Path | None) -> Bisection:
    """Returns the result for a program; shows each run on standard error, and before them how many there are."""
    _say(f"{FIRST_RUNS} runs to see whether there is a fault; then about 2 log2(n) for n operators, and the number is told")
    with open(log, "wb") if log is not None else open(os.devnull, "wb") as file:
        return Hunt(ScriptRunner(command, program, check, main, file)).go()


def _say(text: str) -> None:
    write_text(_STDERR, f"fineline: {text}\n")
