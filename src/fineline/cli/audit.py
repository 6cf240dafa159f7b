"""The audit: which rules and marks of a program fired, which never matched, and which it could do without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
    """Runs the program in processes of its own: twice as it is, and once without each rule that fired."""

    def __init__(self, command: list[str]) -> None:
        self.command = command
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
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "facts.json"
            left_out = ["--without", without] if without is not None else []
            command = [sys.executable, "-m", "fineline", "run", "--explain", str(out), *left_out, *self.command]
            done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "0"}, check=False)
            facts = json.loads(out.read_text()) if out.exists() else {"functions": [], "rules": []}
        events = [event for function in facts["functions"] for event in function["events"]]
        count = {kind: sum(e["kind"] == kind for e in events) for kind in ("graph", "break", "eager", "limit", "raised")}
        # What no rule asked for.
        skipped = sum(e["kind"] == "skipped" and not e["rule"] for e in events)
        trouble = count["eager"] + count["limit"] + count["raised"] + skipped
        return Outcome(done.returncode, done.stdout, done.stderr, count["graph"], count["break"], trouble, tuple(facts["rules"]))


def _foreign(place: str) -> bool:
    """Whether a mark is a library's own affair."""
    return any(place.startswith(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))
