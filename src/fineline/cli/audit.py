"""The audit: which rules and marks of a program fired, which never matched, and which are not needed."""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fineline.cli.forked_run import failure_line, run_in_copy
from fineline.refusals import REFUSALS
from fineline.report.costs import NO_COST, Cost

if TYPE_CHECKING:
    from fineline.report.explain import RuleFacts


@dataclass(frozen=True)
class Outcome:
    """One run of the program. ``eager`` counts the events after which no graph runs, by kind and id."""

    status: int
    output: bytes
    errors: bytes
    graphs: int
    breaks: int
    eager: Counter[tuple[str, str]]
    rules: tuple[RuleFacts, ...]
    # What the graph breaks have cost, with all graphs and guards.
    cost: Cost = NO_COST

    def failure(self) -> str:
        """Returns the line on stderr with the failure: the first of the last refusal, or else the last line; "" without a failure."""
        return failure_line(self.errors) if self.status else ""


@dataclass(frozen=True)
class Verdict:
    """The verdict of the audit on one rule."""

    rule: RuleFacts
    removable: bool
    text: str
    # What the rule costs or saves: the run as it is, compared with that without the rule.
    cost: Cost = NO_COST


# Kinds of events after which no graph runs, with a description of each.
_EAGER = {
    "eager": "stretches that run eagerly",
    "limit": "limits that are reached",
    "raised": "captures that raise",
    "skipped": "functions that are not traced into",
}


class Audit:
    """Runs the program in copies of this process: twice as it is, and once without each rule that fired.

    ``main``: the command line, which reads ``sys.argv``. Copies share this process's hash seed, so their sets have the same order.
    """

    def __init__(self, command: list[str], main: Callable[[], None]) -> None:
        self.command, self.main = command, main
        self.base = self._run()
        again = self._run()
        # Whether two runs print the same; otherwise the output is not compared.
        self.repeatable = (again.output, again.failure()) == (self.base.output, self.base.failure())

    def rules(self) -> list[RuleFacts]:
        """Returns the rules and marks to judge: those that fired, most often first, and those of the program that did not."""
        return [rule for rule in sorted(self.base.rules, key=lambda rule: -rule["times"]) if rule["times"] or not _foreign(rule["place"])]

    def verdict(self, rule: RuleFacts) -> Verdict:
        """Judges one rule; if it fired, runs the program without it."""
        if not rule["times"]:
            return Verdict(rule, True, "never matched")
        other = self._run(rule["key"])
        why = self._needed(other)
        return Verdict(rule, not why, f"needed: without it {why}" if why else "could be removed", self.base.cost - other.cost)

    def as_dict(self, verdicts: list[Verdict]) -> dict[str, object]:
        """Returns the facts of the run, and the rules with their verdicts, for JSON."""
        rules = [{**verdict.rule, "needed": not verdict.removable, "verdict": verdict.text, "costs": verdict.cost.as_dict()} for verdict in verdicts]
        facts = {"status": self.base.status, "graphs": self.base.graphs, "breaks": self.base.breaks, "repeatable": self.repeatable}
        return {**facts, "rules": rules}

    def _needed(self, other: Outcome) -> str:
        """Describes what is worse in another run; empty if nothing is."""
        base = self.base
        if other.status != base.status:
            failure = f": {other.failure()}" if other.failure() else ""
            return f"the exit status is {other.status}, not {base.status}{failure}"
        if self.repeatable and other.output != base.output:
            return "the program prints something else"
        if self.repeatable and other.failure() != base.failure():
            return f"the program fails with: {other.failure()}"
        if other.breaks > base.breaks:
            return f"there are {other.breaks} graph breaks, not {base.breaks}"
        # More graphs are not worse: code that ran eagerly between two breaks may be a graph now.
        return _more_eager(base.eager, other.eager) if other.eager.total() > base.eager.total() else ""

    def _run(self, without: str | None = None) -> Outcome:
        # Not a TemporaryDirectory: the copy would remove it when it exits.
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
        count = Counter(e["kind"] for e in events)
        # A function that a rule skips does not count.
        eager = Counter((e["kind"], e["id"]) for e in events if e["kind"] in _EAGER and not (e["kind"] == "skipped" and e["rule"]))
        costs = [cost for function in functions for cost in function["costs"]]
        spent = sum(cost["seconds"] for cost in costs), sum(cost["unmeasured"] for cost in costs)
        cost = Cost(count["break"], count["graph"], sum(len(function["guards"]) for function in functions), *spent)
        return Outcome(status, texts[0], texts[1], count["graph"], count["break"], eager, tuple(facts["rules"]), cost)


def _more_eager(base: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> str:
    """Describes the kind of event that has increased most, with its ids."""
    kind = (other - base).most_common(1)[0][0][0]
    counts = [sum(n for (k, _), n in counter.items() if k == kind) for counter in (other, base)]
    ids = sorted(id for k, id in other - base if k == kind)
    return f"there are more {_EAGER[kind]}: {counts[0]}, not {counts[1]} ({', '.join(f'{id} {REFUSALS[id].title}' for id in ids)})"


def _foreign(place: str) -> bool:
    """Returns whether a mark was declared by an installed package or the standard library."""
    return any(place.startswith(sysconfig.get_path(name)) for name in ("purelib", "platlib", "stdlib"))
