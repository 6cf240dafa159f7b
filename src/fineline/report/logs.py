"""Logs, a view of the events: breadcrumbs in the logger "fineline", and a child of it for each category that FINELINE_LOGS names."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fineline.report.events import Event
from fineline.stacks import folded, tells_more

# What FINELINE_LOGS may name -> the kinds of events that go there.
CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "breaks": ("break", "eager", "skipped", "limit", "raised"),
        "recompiles": ("recompile",),
        "guards": ("program",),
        "graphs": ("program",),
        "program": ("program",),
    }
)
# Of breadcrumbs; a program that makes code for ever may have places for ever.
MOST_PLACES = 10_000


class Logs:
    """The loggers. Nothing is printed unless the user sets up logging, or asks in the environment: then to stderr."""

    def __init__(self, asked: str) -> None:
        self.log = logging.getLogger("fineline")
        self.loggers = {name: logging.getLogger(f"fineline.{name}") for name in CATEGORIES}
        self._said: set[tuple[str, str]] = set()
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if names:
            self._print()
        for name in names:
            if name in self.loggers:
                self.loggers[name].setLevel(logging.DEBUG)
            else:
                self.log.warning("FINELINE_LOGS: there is no %r; known are %s", name, ", ".join(CATEGORIES))

    def _print(self) -> None:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        # Once the application has set up logging itself, its handlers print what there is.
        handler.addFilter(lambda record: not logging.getLogger().handlers)
        self.log.addHandler(handler)

    def hear(self, event: Event) -> None:
        # At a graph break that has been said; a call of a region in a with disable() block is no break.
        if event.users_rule and (event.kind in ("break", "eager") or (event.kind == "skipped" and event.id == "FL406")):
            self._breadcrumb(event)
        for name, kinds in CATEGORIES.items():
            if event.kind in kinds and self.loggers[name].isEnabledFor(logging.DEBUG):
                text = _TEXTS[name](event)
                if text:
                    self.loggers[name].debug("%s", text)

    def _breadcrumb(self, event: Event) -> None:
        """Once per place: that a mark or rule keeps it eager, and where that is written."""
        key = (event.where, event.rule)
        if key not in self._said and len(self._said) < MOST_PLACES and self.log.isEnabledFor(logging.INFO):
            self._said.add(key)
            self.log.info("%s runs eagerly: %s; the rule: %s", event.where, event.reason, event.rule)

    def forget(self) -> None:
        """Says again what has been said."""
        self._said.clear()


def _one(event: Event) -> str:
    rule = f"; the rule: {event.rule}" if event.rule else ""
    return "\n    from ".join([f"{event.region}: {event}{rule}", "\n         ".join(folded(event.stack))][: 1 + tells_more(event.stack)])


def _guards(event: Event) -> str:
    return "\n  ".join([f"{event.region}: {event}", *event.detail["guards"]()])


def _graph(event: Event) -> str:
    graph: Any = event.detail["graph"]
    return f"{event.region}: {event}\n{graph.code.strip()}" if graph is not None else ""


def _program(event: Event) -> str:
    return f"{event.region}: {event}\n{event.detail['source'].strip()}"


_TEXTS = MappingProxyType({"breaks": _one, "recompiles": _one, "guards": _guards, "graphs": _graph, "program": _program})

LOGS = Logs(os.environ.get("FINELINE_LOGS", ""))
