"""The part of a run that its backends compile, for ``fineline bisect``: read from a file, in each process of the program."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from fineline.backends.registry import BACKENDS
from fineline.bisection.facts import GraphFacts
from fineline.bisection.rules import EagerRule, policy_text
from fineline.bisection.suspects import Candidate, Suspects
from fineline.policy.files import PolicyFile
from fineline.policy.policy import Policy
from fineline.policy.stance import set_stance

_CANDIDATE, _RULES, _RAN = "candidate.json", "rules.toml", "ran"


class SuspectRun:
    """The files of one run, in a folder: its candidate, the rules that it tries, and the facts of the graphs of each process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, candidate: Candidate, rules: Sequence[EagerRule]) -> None:
        facts = {
            "graphs": None if candidate.graphs is None else sorted(candidate.graphs), "stretches": list(candidate.stretches.items()),
            "cut": candidate.cut, "captures": candidate.captures,
        }  # fmt: skip
        (self.folder / _CANDIDATE).write_text(json.dumps(facts))
        (self.folder / _RULES).write_text(policy_text(rules))

    def begin(self) -> Policy:
        """Has the backends of this process compile what the candidate names; returns the rules."""
        facts = json.loads((self.folder / _CANDIDATE).read_text())
        graphs = None if facts["graphs"] is None else frozenset(facts["graphs"])
        stretches = {number: (begin, end) for number, (begin, end) in facts["stretches"]}
        if not facts["captures"]:
            set_stance("force_eager")
        suspects = Suspects(Candidate(graphs, stretches, facts["cut"]), self._tell, ran=self._note_run)
        BACKENDS.replace_by(suspects.within)
        return PolicyFile(self.folder / _RULES).policy(early=True)

    @property
    def ran(self) -> bool:
        """Returns whether a process of the program has run a compiled graph."""
        return (self.folder / _RAN).exists()

    def _note_run(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / _RAN).touch()

    def _tell(self, number: int, graph: GraphFacts) -> None:
        line = f"{json.dumps([number, graph.as_dict()])}\n"
        # The bisection that reads them may have been stopped.
        with contextlib.suppress(OSError), (self.folder / f"{os.getpid()}.jsonl").open("a") as file:
            file.write(line)

    def graphs(self, first: int) -> tuple[GraphFacts, ...]:
        """Returns the facts of the graphs by number: of the process ``first``, and of others where it has none of that number."""
        found: dict[int, GraphFacts] = {}
        files = sorted(self.folder.glob("*.jsonl"), key=lambda file: (file.stem != str(first), file.stem))
        for file in files:
            for line in file.read_text().splitlines():
                number, facts = _read(line)
                if facts is not None:
                    found.setdefault(number, facts)
        return tuple([found.get(i, GraphFacts(())) for i in range(max(found, default=-1) + 1)])


def _read(line: str) -> tuple[int, GraphFacts | None]:
    """Returns the number and the facts of a graph; no facts if the line is incomplete, because its process was killed."""
    try:
        number, facts = json.loads(line)
    except ValueError:
        return 0, None
    return int(number), GraphFacts.from_dict(facts)
