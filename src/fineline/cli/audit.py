"""The audit: which rules and marks of a program fired, which never matched, and which it could do without."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fineline.cli.copied import run_in_copy


@dataclass(frozen=True)
class Outcome:
    """One run of the program. ``trouble``: what a capture gave up or that raised; fewer is better, and so for the breaks."""

    status: int
    output: bytes
    errors: bytes
    graphs: int
    breaks: int
    trouble: int
    rules: tuple[dict[str, Any], ...]


@dataclass(frozen=True)
class Verdict:
    """What the audit says of one rule."""

    rule: dict[str, Any]
    removable: bool
    text: str


class Audit:
    """Runs the program in copies of this process: twice as it is, and once without each rule that fired.

    ``main``: the command line, which reads ``sys.argv``. Copies put the same things into sets in the same order.
    """

    def __init__(self, command: list[str], main: Callable[[], None]) -> None:
        self.command, self.main = command, main
        self.base = self._run()
        # Whether two runs print the same: else what is printed tells nothing.
        self.repeatable = self._run().output == self.base.output

    def verdicts(self) -> Iterator[Verdict]:
        for rule in sorted(self.base.rules, key=lambda rule: -rule["times"]):
            if rule["times"]:
                why = self._needed(self._run(rule["key"]))
                yield Verdict(rule, not why, f"needed: {why}" if why else "could be removed")
            elif not _foreign(rule["place"]):
                yield Verdict(rule, True, "never matched")

    def _needed(self, other: Outcome) -> str:
        """What is worse in another run; empty: nothing."""
        base = self.base
        if other.status != base.status:
            return f"without it the exit status is {other.status}, not {base.status}"
        if self.repeatable and other.output != base.output:
            return "without it the program prints something else"
        if other.breaks > base.breaks:
            return f"without it there are {other.breaks} graph breaks, not {base.breaks}"
        # More graphs are no harm: what ran eagerly between two breaks may be one now.
        return f"without it {other.trouble} captures are given up, not {base.trouble}" if other.trouble > base.trouble else ""

    def _run(self, without: str | None = None) -> Outcome:
        # No TemporaryDirectory: the copy would take it away when it exits.
        out = Path(tempfile.mkdtemp()) / "facts.json"
        left_out = ["--without", without] if without is not None else []

        def run() -> None:
            sys.argv = [sys.argv[0], "run", "--explain", str(out), *left_out, *self.command]
            # For the processes that the program starts.
            os.environ["PYTHONHASHSEED"] = "0"
            self.main()

        with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as errors:
            status = run_in_copy(run, printed, errors)
            texts = []
            for file in (printed, errors):
                file.seek(0)
                texts.append(file.read())
        facts = json.loads(out.read_text()) if out.exists() else {"functions": [], "rules": [], "processes": []}
        shutil.rmtree(out.parent)
        functions = [function for process in (facts, *facts["processes"]) for function in process["functions"]]
        events = [event for function in functions for event in function["events"]]
        count = {kind: sum(e["kind"] == kind for e in events) for kind in ("graph", "break", "eager", "limit", "raised")}
        # What no rule asked for.
        skipped = sum(e["kind"] == "skipped" and not e["rule"] for e in events)
        trouble = count["eager"] + count["limit"] + count["raised"] + skipped
        return Outcome(status, texts[0], texts[1], count["graph"], count["break"], trouble, tuple(facts["rules"]))


def _foreign(place: str) -> bool:
    """Whether a mark is a library's own affair."""
    return any(place.startswith(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))
