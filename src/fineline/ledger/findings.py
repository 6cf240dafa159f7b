"""What a run has met: graph breaks, eager stretches and recompiles, gathered from its events by function and reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, TypedDict

from fineline.ledger.functions import Names
from fineline.ledger.reasons import stable_reason
from fineline.refusals import REFUSALS
from fineline.report.events import Detail, Event
from fineline.stacks import StackPlace, folded, has_callers

# The tables of a ledger, each with the words for one of its entries.
KINDS: Mapping[str, str] = MappingProxyType({"break": "graph break", "eager": "eager stretch", "recompile": "recompile"})
# Kinds of events that are eager stretches. Other "skipped" code is at a graph break, or due to the state of the process (FL406), such as
# another thread that captures.
_EAGER = frozenset({"eager", "limit"})
_NEVER_CAPTURED = "FL405"


class Key(NamedTuple):
    """What identifies an entry. Entries are sorted by it."""

    kind: str
    function: str
    id: str
    reason: str


class FindingFacts(TypedDict):
    """A finding, for JSON."""

    key: list[str]
    said: str
    rule: str
    file: str
    line: int
    callers: list[str]
    places: list[str]


@dataclass
class Finding:
    """What a run has met under one key: where it was first, and at how many places.

    ``said``: the reason with its numbers; ``rule``: the user's rule that asked for it; ``callers``: lines with the frames that led there.
    """

    key: Key
    said: str
    rule: str
    file: str
    line: int
    callers: list[str]
    places: list[str]

    @property
    def next_step(self) -> str:
        return REFUSALS[self.key.id].next_step if self.key.id in REFUSALS else ""

    @property
    def title(self) -> str:
        return REFUSALS[self.key.id].title if self.key.id in REFUSALS else self.key.id

    def as_dict(self) -> FindingFacts:
        return {**asdict(self), "key": [*self.key]}  # type: ignore[typeddict-item]

    def merge(self, other: Finding) -> None:
        self.places += [place for place in other.places if place not in self.places]


class Findings:
    """Collects the findings of a run, for a ledger in ``folder``.

    Places in the code are counted, not calls. The place of a graph break is the way to it from the compiled function: a second call of a
    function that breaks the graph is another place. That of the others is a line, in calls of one compiled function.
    """

    def __init__(self, folder: Path) -> None:
        self._names = Names(folder)
        self._events: dict[tuple[Event, str, tuple[StackPlace, ...]], Event] = {}
        self._found: dict[Key, Finding] = {}

    def hear(self, event: Event) -> None:
        """Keeps an event. It is read later: this runs inside of captures."""
        if _kind(event):
            self._events.setdefault((replace(event, detail=Detail()), event.region, event.stack), event)

    def sorted(self) -> list[Finding]:
        events, self._events = self._events, {}
        for event in events.values():
            self._add(self._finding(event))
        return sorted(self._found.values(), key=lambda finding: finding.key)

    def _finding(self, event: Event) -> Finding:
        kind, names = _kind(event), self._names
        function = names.function(event.file, event.line, event.function, event.region)
        key = Key(kind, function, event.id, stable_reason(event.kind, event.reason))
        way = event.stack if kind == "break" and event.stack else ((event.file, event.line, event.region),)
        # Once for a function that calls itself, whose depth may depend on data.
        place = " ".join(dict.fromkeys([f"{file}:{line}" for file, line, _ in way])) + ("" if kind == "break" else f" {event.region}")
        callers = folded(event.stack) if has_callers(event.stack) else []
        said = " ".join(event.reason.split())
        return Finding(key, said, _head(event.users_rule), names.absolute(event.file), event.line, callers, [place])

    def merge(self, facts: Iterable[FindingFacts]) -> None:
        """Adds the findings of another process."""
        for fact in facts:
            kind, function, id_, reason = fact["key"]
            self._add(Finding(**{**fact, "key": Key(kind, function, id_, reason)}))  # type: ignore[arg-type]

    def facts(self) -> list[FindingFacts]:
        return [finding.as_dict() for finding in self.sorted()]

    def _add(self, finding: Finding) -> None:
        self._found.setdefault(finding.key, finding).merge(finding)


def _kind(event: Event) -> str:
    """Returns the table of a ledger in which an event belongs; "" if it belongs in none."""
    if event.kind in ("break", "recompile"):
        return event.kind
    # An event about a function that is skipped at a graph break has the place of the function, and no name for it.
    never = event.kind == "skipped" and event.id == _NEVER_CAPTURED and event.function
    return "eager" if event.kind in _EAGER or never else ""


def _head(rule: str) -> str:
    """Returns what a rule selects, without the place of its declaration and its reason."""
    return re.split(r"\)(?: at |: )", rule)[0] + ")" if re.search(r"\)(?: at |: )", rule) else rule
