"""The other Pythons that a program under ``fineline run`` starts: they run on fineline too, and the run reports what happens in them.

They find what holds for them in the environment: `RunOptions`. Each process but the first appends its events to a file of its own as they
come, so that nothing is lost however it ends; the first reads them when the program has ended.
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
from fineline.cli.event_log import Heard, graph_code
from fineline.errors import BadRule
from fineline.install import install
from fineline.policy.files import PolicyFile
from fineline.policy.marks import MARKS
from fineline.policy.rule import Rule
from fineline.policy.selector import Selector
from fineline.region.options import Breaks
from fineline.report.events import LISTENERS, Event
from fineline.report.output import STREAMS, write_report
from fineline.report.tree import Node

# What startup/sitecustomize.py looks for.
VARIABLE = "FINELINE_RUN"
STARTUP = Path(__file__).parent / "startup"


@dataclass(frozen=True)
class RunOptions:
    """The options of a run: the policy's file, the breaks, a rule to leave out, and the folders in which other processes write their events, and
    the names in the policy that they do not know.
    """

    policy: str | None = None
    breaks: Breaks | None = None
    without: str = ""
    events: str | None = None
    waiting: str | None = None

    def pass_on(self) -> None:
        """Tells the Pythons that this process starts from now on."""
        os.environ[VARIABLE] = json.dumps(asdict(self))
        path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(STARTUP), *[folder for folder in path if folder and folder != str(STARTUP)]])


def join() -> None:
    """Does in a process that the program has started what the run did in the first one."""
    options = RunOptions(**json.loads(os.environ[VARIABLE]))
    LISTENERS.trees = options.events is not None
    MARKS.without = options.without
    if options.policy is not None:
        file = PolicyFile(Path(options.policy))
        set_policy(file.policy(early=True))
        if options.waiting is not None:
            Waiting(file, Path(options.waiting)).begin()
    install(breaks=options.breaks)
    if options.events is not None:
        relay = Relay(Path(options.events))
        relay.begin()
        LISTENERS.all = (*LISTENERS.all, relay.hear)


class Waiting:
    """Rules for operators and names that nobody knew when the program began: some process of the program has to know them in the end.

    Each process but the first writes down, when it ends, which texts it does not know; one that is killed leaves its file empty.
    """

    def __init__(self, file: PolicyFile, folder: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fineline-rules-")) if folder is None else folder
        self._file = file
        self._pid = os.getpid()
        register_after_fork(self, Waiting._begin_copy)

    def begin(self) -> None:
        """Takes part in a process that the program has started."""
        # The run that reads the files may have ended before this process.
        with contextlib.suppress(OSError):
            self._path.touch()
        atexit.register(self._write)

    def settle(self) -> list[BadRule]:
        """Returns what is wrong with the rules that no process has known. In a copy of the process: nothing."""
        if os.getpid() != self._pid:
            self._write()
            return []
        texts = [path.read_text(encoding="utf-8") for path in self.folder.glob("*.json")]
        shutil.rmtree(self.folder, ignore_errors=True)
        # What a process that was killed has known is not known.
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
    """Appends each event to the file of the process that it happens in. A process that has been forked has a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        # What is told at the end once more, as it has grown: the calls of each region and its counts.
        self._growing: dict[int, Event] = {}
        register_after_fork(self, Relay._begin_copy)

    def begin(self) -> None:
        """Takes part in a process that the program has started. Python's exit functions run this too, where multiprocessing does not fork."""
        Finalize(None, self.end, exitpriority=0)

    def end(self) -> None:
        """Tells at the end of the process what has grown since it was told; of one that is killed, what it was by then is known."""
        growing, self._growing = self._growing, {}
        for event in growing.values():
            # In a copy that has called nothing itself, what there is is its parent's.
            if event.detail["ran"]:
                self._write(event)

    def _begin_copy(self) -> None:
        """Starts in a process that multiprocessing has forked: the events so far are those of its parent."""
        self._growing = {}
        self.begin()

    def hear(self, event: Event) -> None:
        if event.kind == "tree":
            self._growing[event.detail["of"]] = event
        self._write(event)

    def _write(self, event: Event) -> None:
        path = self.folder / f"{os.getpid()}.jsonl"
        facts = [_packed(event)] if path.exists() else [_process(), _packed(event)]
        text = "".join([f"{json.dumps(fact)}\n" for fact in facts])
        # The run that collects them may have ended before this process.
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            try:
                # In one piece: threads write to it as well.
                os.write(file, text.encode())
            finally:
                os.close(file)


class Report:
    """Hears the events of this process and collects those of the others, for ``--explain``."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fineline-run-"))
        self._pid = os.getpid()
        self._heard = Heard()
        self._relay = Relay(self.folder)

    def hear(self, event: Event) -> None:
        (self._heard if os.getpid() == self._pid else self._relay).hear(event)

    def write(self, path: Path) -> None:
        """Writes the report. In a copy of the process, which a program that forks leaves by this way too, tells what has grown there."""
        if os.getpid() != self._pid:
            self._relay.end()
            return
        processes = [Process(file) for file in sorted(self.folder.glob("*.jsonl"))]
        shutil.rmtree(self.folder, ignore_errors=True)
        chapters = [("", self._heard.explanations()), *[(str(process), process.heard.explanations()) for process in processes]]

        def facts() -> dict[str, Any]:
            return {
                **self._heard.facts([process.heard for process in processes]),
                "processes": [process.as_dict() for process in processes],
            }

        write_report(path, chapters, facts)


class Process:
    """The facts and events of another process, read from the file that it has written."""

    def __init__(self, file: Path) -> None:
        self.heard = Heard()
        self.facts: dict[str, Any] = {}
        counters: dict[int, Counter[Rule]] = {}
        for fact in _lines(file):
            if "pid" in fact:
                self.facts = fact
            else:
                self.heard.hear(_unpacked(fact, counters))

    def __str__(self) -> str:
        rank = f", rank {self.facts['rank']}" if self.facts.get("rank") else ""
        return f"process {self.facts.get('pid', '?')}{rank} ({self.facts.get('program', '?')})"

    def as_dict(self) -> dict[str, Any]:
        return {**self.facts, "functions": [explanation.as_dict() for explanation in self.heard.explanations()]}


def own_file(path: Path) -> Path:
    """Returns where this process writes its report: each rank that a launcher has started on ``fineline run`` has its own file."""
    rank = os.environ.get("RANK") if "LOCAL_RANK" in os.environ else None
    return path if rank is None or str(path) in STREAMS else path.with_name(f"{path.stem}.rank{rank}{path.suffix}")


def _process() -> dict[str, Any]:
    return {"pid": os.getpid(), "rank": os.environ.get("RANK"), "program": sys.argv[0] if sys.argv else ""}


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    for line in file.read_text(encoding="utf-8").splitlines():
        # The last one may be cut off, where the process was killed.
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


# -- events as lines of text -----------------------------------------------------------------------------------------------
def _packed(event: Event) -> dict[str, Any]:
    facts = {**event.as_dict(), "region": event.region}
    if event.kind == "program":
        return {**facts, "source": event.detail["source"], "guards": event.detail["guards"](), "code": graph_code(event)}
    if event.kind == "tree":
        tree = event.detail["tree"]
        return {**facts, "tree": tree and tree().as_dict(), "ran": event.detail["ran"], "of": event.detail["of"]}
    if event.kind == "rules":
        fired = event.detail["fired"]
        return {**facts, "counter": id(fired), "fired": [(_packed_rule(rule), times) for rule, times in list(fired.items())]}
    return facts


def _unpacked(facts: dict[str, Any], counters: dict[int, Counter[Rule]]) -> Event:
    known = {name: facts.pop(name) for name in ("kind", "id", "reason", "file", "line", "rule", "region")}
    detail: dict[str, Any] = {**facts, "stack": tuple([(p["file"], p["line"], p["function"]) for p in facts["stack"]])}
    if known["kind"] == "program":
        guards = facts["guards"]
        detail = {"source": facts["source"], "guards": lambda: guards, "code": facts["code"]}
    elif known["kind"] == "tree":
        tree = facts["tree"] and Node.from_dict(facts["tree"])
        ran = facts["ran"] if facts["ran"] is None else Counter(facts["ran"])
        detail = {"tree": tree and (lambda: tree), "ran": ran, "of": facts["of"]}
    elif known["kind"] == "rules":
        # One counter for each region, which each event has as it was by then.
        counter = counters.setdefault(facts["counter"], Counter())
        counter.update({_unpacked_rule(rule): 0 for rule, _ in facts["fired"]})
        for rule, times in facts["fired"]:
            counter[_unpacked_rule(rule)] = times
        detail = {"fired": counter}
    return Event(**known, detail=detail)


def _packed_rule(rule: Rule) -> list[Any]:
    return [rule.verb, rule.selector.rank, rule.selector.kind, rule.selector.text, rule.reason, rule.place, rule.scope, rule.error]


def _unpacked_rule(facts: list[Any]) -> Rule:
    verb, rank, kind, text, reason, place, scope, error = facts
    return Rule(verb, Selector(rank, kind, None, text), reason, place, None, scope, error)
