"""Runs the Python processes that a program under ``fineline run`` starts on fineline, and reports their events.

They read their options from the environment (`RunOptions`). Each process except the first appends its events to its own file at
once, so that none is lost however it ends; the first process reads the files when the program has ended.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from multiprocessing.util import Finalize, register_after_fork
from pathlib import Path
from typing import Any

from fineline.api import set_policy
from fineline.cli.event_log import Heard
from fineline.cli.suspect_run import SuspectRun
from fineline.errors import BadRule
from fineline.identity import IdentitySet
from fineline.install import install
from fineline.ledger.findings import Findings
from fineline.policy.files import PolicyFile
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.rule import Rule
from fineline.policy.selector import Selector
from fineline.region.options import Breaks
from fineline.report.costs import BreakCost
from fineline.report.events import LISTENERS, Detail, Event, ShownRule
from fineline.report.misses import Miss
from fineline.report.output import write_report
from fineline.report.programs import KeptProgram
from fineline.report.streams import STREAMS
from fineline.report.tree import Node

# The environment variable that startup/sitecustomize.py reads.
VARIABLE = "FINELINE_RUN"
STARTUP = Path(__file__).parent / "startup"


# The events that only a report needs; some are large.
_EXPLAINING = frozenset({"graph", "program", "rules", "tree"})


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: the policy's file, the breaks, a rule to leave out, and the folders in which other processes write
    their events and the names in the policy that they do not know. ``explains``: whether a report is wanted, and not only a ledger.
    ``suspects``: the folder with the part of the graphs that is compiled, for a bisection.
    """

    policy: str | None = None
    breaks: Breaks | None = None
    without: str = ""
    events: str | None = None
    waiting: str | None = None
    explains: bool = False
    suspects: str | None = None

    def pass_on(self) -> None:
        """Puts the options into the environment of the Python processes that this process starts."""
        os.environ[VARIABLE] = json.dumps(asdict(self))
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *[folder for folder in path if folder and folder != str(STARTUP)]])


def join() -> None:
    """Sets up a process that the program has started as the run set up the first one."""
    options = RunOptions(**json.loads(os.environ[VARIABLE]))
    LISTENERS.trees = options.explains
    MARKS.without = options.without
    if options.policy is not None:
        file = PolicyFile(Path(options.policy))
        set_policy(file.policy(early=True))
        if options.waiting is not None:
            Waiting(file, Path(options.waiting)).begin()
    if options.suspects is not None:
        add_policy(SuspectRun(Path(options.suspects)).begin())
    install(breaks=options.breaks)
    if options.events is not None:
        relay = Relay(Path(options.events), options.explains)
        relay.begin()
        LISTENERS.all = (*LISTENERS.all, relay.hear)


def add_policy(more: Policy) -> None:
    """Adds rules to those of the process."""
    before = set_policy(None)
    set_policy(more if before is None else before | more)


class Waiting:
    """Rules for operators and names that were unknown when the program began: some process must know them at the end.

    Each process except the first writes the texts that it does not know when it ends; a killed one leaves its file empty.
    """

    def __init__(self, file: PolicyFile, folder: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fineline-rules-")) if folder is None else folder
        self._file = file
        self._pid = os.getpid()
        register_after_fork(self, Waiting._begin_copy)

    def begin(self) -> None:
        """Starts in a process that the program has started; it writes its file when it ends."""
        # The run that reads the files may have ended before this process.
        with contextlib.suppress(OSError):
            self._path.touch()
        atexit.register(self._write)

    def settle(self) -> list[BadRule]:
        """Returns the errors of the rules that no process knows. A forked copy writes its file and returns none."""
        if os.getpid() != self._pid:
            self._write()
            return []
        texts = [path.read_text(encoding="utf-8") for path in self.folder.glob("*.json")]
        shutil.rmtree(self.folder, ignore_errors=True)
        # A process that was killed may have known all of them.
        everywhere = set(self._file.unknown()).intersection(*[json.loads(text) if text else () for text in texts])
        return [e for e, text in self._file.waiting if text in everywhere]

    @property
    def _path(self) -> Path:
        return self.folder / f"{os.getpid()}.json"

    def _begin_copy(self) -> None:
        """Starts in a process that multiprocessing has forked, which ends without Python's exit functions."""
        self.begin()
        Finalize(None, self._write, exitpriority=0)

    def _write(self) -> None:
        with contextlib.suppress(OSError):
            self._path.write_text(json.dumps(self._file.unknown()), encoding="utf-8")


class Relay:
    """Appends each event to the file of its process. A forked process has its own file."""

    def __init__(self, folder: Path, explains: bool) -> None:
        self.folder = folder
        self._explains = explains
        # Events to write again at the end, because they grow: the calls of each region and its counts.
        self._growing: dict[object, Event] = {}
        # The counters whose addresses have been written: they are not used again.
        self._counters = IdentitySet()
        register_after_fork(self, Relay._begin_copy)

    def begin(self) -> None:
        """Starts in a process that the program has started: `end` runs at its exit, whether or not multiprocessing forked it."""
        Finalize(None, self.end, exitpriority=0)

    def end(self) -> None:
        """Writes the events that grow again, at the end of the process. A killed process leaves their earlier state."""
        growing, self._growing = self._growing, {}
        for event in growing.values():
            # In a forked copy without calls of its own, the event is its parent's.
            if event.detail["ran"]:
                self._write(event)

    def _begin_copy(self) -> None:
        """Starts in a process that multiprocessing has forked: the events so far are those of its parent."""
        self._growing = {}
        self.begin()

    def hear(self, event: Event) -> None:
        if not self._explains and event.kind in _EXPLAINING:
            return
        if event.kind == "tree":
            self._growing[event.detail["of"]] = event
        elif event.kind == "rules":
            self._counters.add(event.detail["fired"])
        self._write(event)

    def _write(self, event: Event) -> None:
        path = self.folder / f"{os.getpid()}.jsonl"
        facts = [_packed(event)] if path.exists() else [_process(), _packed(event)]
        text = "".join([f"{json.dumps(fact)}\n" for fact in facts])
        # The run that collects them may have ended before this process.
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                # One write, because other threads write to the file too.
                os.write(file, text.encode())
            finally:
                os.close(file)


class Report:
    """Collects the events of this process and of the others, for ``--explain`` and for a ledger's ``findings``."""

    def __init__(self, explains: bool, findings: Findings | None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fineline-run-"))
        self.explains = explains
        self._findings = findings
        self._pid = os.getpid()
        self._heard = Heard()
        self._relay = Relay(self.folder, explains)

    def hear(self, event: Event) -> None:
        if os.getpid() != self._pid:
            self._relay.hear(event)
            return
        if self.explains:
            self._heard.hear(event)
        if self._findings is not None:
            self._findings.hear(event)

    def settle(self, path: Path | None) -> bool:
        """Collects the events of the other processes, and writes the report to ``path``.

        A forked copy of the process, which also ends here, writes its events instead; then it returns False.
        """
        if os.getpid() != self._pid:
            self._relay.end()
            return False
        processes = [Process(file, self._findings) for file in sorted(self.folder.glob("*.jsonl"))]
        shutil.rmtree(self.folder, ignore_errors=True)
        if path is not None:
            self._write(path, processes)
        return True

    def _write(self, path: Path, processes: list[Process]) -> None:
        reports = [explanation.for_page() for explanation in self._heard.explanations()]
        for process in processes:
            reports += [explanation.for_page(str(process)) for explanation in process.heard.explanations()]

        def facts() -> dict[str, object]:
            return {
                **self._heard.facts([process.heard for process in processes]),
                "processes": [process.as_dict() for process in processes],
            }

        write_report(path, reports, facts)


class Process:
    """The facts and events of another process, read from the file that it has written."""

    def __init__(self, file: Path, findings: Findings | None) -> None:
        self.heard = Heard()
        self.facts: dict[str, object] = {}
        counters: dict[int, Counter[ShownRule]] = {}
        for fact in _lines(file):
            if "pid" in fact:
                self.facts = fact
            else:
                event = _unpacked(fact, counters)
                self.heard.hear(event)
                if findings is not None:
                    findings.hear(event)

    def __str__(self) -> str:
        rank = f", rank {self.facts['rank']}" if self.facts.get("rank") else ""
        return f"process {self.facts.get('pid', '?')}{rank} ({self.facts.get('program', '?')})"

    def as_dict(self) -> dict[str, object]:
        return {**self.facts, "functions": [explanation.as_dict() for explanation in self.heard.explanations()]}


def own_file(path: Path) -> Path:
    """Returns the path of this process's report: each rank that a launcher starts with ``fineline run`` has its own file."""
    rank = os.environ.get("RANK") if "LOCAL_RANK" in os.environ else None
    return path if rank is None or str(path) in STREAMS else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _process() -> dict[str, object]:
    return {"pid": os.getpid(), "rank": os.environ.get("RANK"), "program": sys.argv[0] if sys.argv else ""}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        # The last line may be incomplete, if the process was killed.
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


# -- events as lines of text -----------------------------------------------------------------------------------------------
def _packed(event: Event) -> dict[str, object]:
    facts = {**event.as_dict(), "region": event.region}
    if event.kind == "program":
        return {**facts, "program": event.detail["program"]().as_dict()}
    if event.kind == "tree":
        tree = event.detail["tree"]
        costs = [cost.as_dict() for cost in event.detail["costs"]()] if "costs" in event.detail else []
        return {**facts, "tree": tree and tree().as_list(), "ran": event.detail["ran"], "of": id(event.detail["of"]), "costs": costs}
    if event.kind == "rules":
        fired = event.detail["fired"]
        return {**facts, "counter": id(fired), "fired": [(_packed_rule(rule), times) for rule, times in list(fired.items())]}
    return facts


def _unpacked(facts: Any, counters: dict[int, Counter[ShownRule]]) -> Event:
    known = {name: facts.pop(name) for name in ("kind", "id", "reason", "file", "line", "rule", "region")}
    detail: Detail = {**facts, "stack": tuple([(p["file"], p["line"], p["function"]) for p in facts["stack"]])}
    if "miss" in facts:
        detail["miss"] = Miss.from_dict(facts["miss"])
    if known["kind"] == "program":
        program = KeptProgram.from_dict(facts["program"])
        detail = {"program": lambda: program}
    elif known["kind"] == "tree":
        tree = facts["tree"] and Node.from_list(facts["tree"])
        ran = facts["ran"] if facts["ran"] is None else Counter(facts["ran"])
        costs = [BreakCost.from_dict(cost) for cost in facts["costs"]]
        detail = {"tree": (lambda: tree) if tree else None, "ran": ran, "of": facts["of"], "costs": lambda: costs}
    elif known["kind"] == "rules":
        # One counter for each region; each event contains its state at that time.
        counter = counters.setdefault(facts["counter"], Counter())
        counter.update({_unpacked_rule(rule): 0 for rule, _ in facts["fired"]})
        for rule, times in facts["fired"]:
            counter[_unpacked_rule(rule)] = times
        detail = {"fired": counter}
    return Event(**known, detail=detail)


def _packed_rule(rule: ShownRule) -> list[str | int]:
    return [rule.verb, rule.selector.rank, rule.selector.kind, rule.selector.text, rule.reason, rule.place, rule.scope, rule.error]


def _unpacked_rule(facts: list[Any]) -> Rule:
    verb, rank, kind, text, reason, place, scope, error = facts
    return Rule(verb, Selector(rank, kind, None, text), reason, place, None, scope, error)
