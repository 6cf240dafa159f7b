"""The reports of a region to its user: the events so far, each of which also goes to the logs and the listeners."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fineline.bytecode.asynchronous import let_pass
from fineline.errors import caller
from fineline.exception_slots import error_text
from fineline.policy.rule import Rule
from fineline.region.descriptions import call_stack, place_of
from fineline.region.entry_point import EntryPoint
from fineline.region.watch import Watch
from fineline.report.events import LISTENERS, Detail, Event, ShownRule
from fineline.report.logs import LOGS
from fineline.report.misses import Miss
from fineline.stacks import StackPlace, to_the_user

log = logging.getLogger("fineline")

# At most so many events are kept; listeners get all.
MOST_EVENTS = 10_000


def _log_failure(hear: Callable[[Event], None], error: Exception) -> None:
    """Logs the error of a listener, once, unless the log raises too: the stack may be at its end."""
    try:
        name = getattr(hear, "__qualname__", type(hear).__name__)
        if (name, type(error)) not in LISTENERS.said:
            LISTENERS.said.add((name, type(error)))
            log.warning("fineline: reports lack events, because %s raises %s", name, error_text(error))
    except Exception as e:
        let_pass(e)


class Reports:
    """The reports of one region, each made once or each time that something happens."""

    def __init__(self, fn: Callable, name: str, fired: Counter[ShownRule]) -> None:
        self.name = name
        self.events: list[Event] = []
        # How often each rule has decided something, over all captures.
        self.fired = fired
        self._fn = fn
        self._said: set[str] = set()
        # Stands for these reports where they are collected: the addresses of regions are used again.
        self._key = object()

    def forget(self) -> None:
        self.events.clear()
        self._said.clear()

    def note(self, event: Event) -> Event:
        """Keeps an event, and passes it to the logs and the listeners; returns it with all that is known of it."""
        if event.kind != "graph" and not event.stack and (event.file, event.line) == place_of(self._fn):
            # The event is about the call of the function.
            event = replace(event, detail={**event.detail, "stack": call_stack(self._fn, None)})
        event = self.tell(event)
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)
        return event

    def note_once(self, event: Event) -> None:
        """Keeps an event and passes it on, unless there was one with the same reason at the same place."""
        if self.is_first(f"{event.reason} {event.where}"):
            self.note(event)

    def note_call(self, kind: str, error: str, reason: str) -> None:
        """Reports something about the call of the region's function."""
        self.note(Event(kind, error, reason, *self.place))

    def note_call_once(self, kind: str, error: str, reason: str) -> None:
        self.note_once(Event(kind, error, reason, *self.place))

    def note_at(self, entry_point: EntryPoint, kind: str, error: str, reason: str) -> None:
        """Reports something about the code that starts at ``entry_point``."""
        self.note(Event(kind, error, reason, *self.place_at(entry_point), detail={"stack": self._stack(entry_point)}))

    def note_recompile(self, entry_point: EntryPoint, miss: Miss) -> None:
        """Reports that a call is captured again from ``entry_point`` on, because it fits no program there."""
        self.note(Event("recompile", "FL407", str(miss), *self.place_at(entry_point), detail={"stack": self._stack(entry_point), "miss": miss}))

    def note_disabled(self, rule: Rule, reason: str) -> None:
        """Reports a call in a block in which a user's ``rule`` disables captures."""
        self.fired[rule] += 1
        file, _, line = caller().rpartition(":")
        self.note_once(Event("skipped", "FL406", reason, file, int(line or 0), str(rule), detail={"stack": to_the_user()}))
        self.tell_rules()

    def is_first(self, text: str) -> bool:
        """Notes that ``text`` has been reported; returns whether it had not been before."""
        if text in self._said:
            return False
        self._said.add(text)
        return True

    def said(self, text: str) -> bool:
        return text in self._said

    def tell(self, event: Event) -> Event:
        """Passes an event to the logs and the listeners. It happens in a user's call: what they raise is logged, and goes no further."""
        event = replace(event, region=self.name)
        for hear in (LOGS.hear, *LISTENERS.all):
            try:
                hear(event)
            except Exception as e:
                let_pass(e)
                _log_failure(hear, e)
        return event

    def tell_rules(self) -> None:
        self.tell(Event("rules", "FL003", "rules that were met", *self.place, detail={"fired": self.fired}))

    def tell_tree(self, watch: Watch) -> None:
        """Passes the tree of calls and the counts of a ``watch`` to listeners; both may still grow."""
        if watch.tree is not None or watch.tally is not None:
            detail: Detail = {"tree": watch.tree, "of": self._key, "ran": watch.tally.counts if watch.tally is not None else None}
            if watch.recording is not None:
                detail["costs"] = watch.recording.costs
            self.tell(Event("tree", "FL004", "calls that were captured", *self.place, detail=detail))

    # -- places --------------------------------------------------------------------------------------------------------
    @property
    def place(self) -> tuple[str, int]:
        """Returns file and line of the region's function."""
        return place_of(self._fn)

    @property
    def where(self) -> str:
        return "{}:{}".format(*self.place)

    def place_at(self, entry_point: EntryPoint) -> tuple[str, int]:
        state = entry_point.frame_state
        return state.place if state is not None and state.place[0] else self.place

    def _stack(self, entry_point: EntryPoint) -> tuple[StackPlace, ...]:
        """Returns the frames from the user's call to ``entry_point``."""
        return call_stack(self._fn, entry_point.frame_state)

    def position(self, entry_point: EntryPoint) -> dict[str, Any]:
        """Returns the place of an error at ``entry_point``, and the frames from the user's call to it."""
        return {"where": "{}:{}".format(*self.place_at(entry_point)), "stack": self._stack(entry_point)}
