"""Logs of the events: breadcrumbs in the logger "fineline", and a child logger for each category of FINELINE_LOGS."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Mapping
from types import MappingProxyType

from fineline.report.events import Event
from fineline.stacks import folded, has_callers

# By category of FINELINE_LOGS: the kinds of events that it logs.
CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "breaks": ("break", "eager", "skipped", "limit", "raised", "shadow"),
        "recompiles": ("recompile",),
        "guards": ("program",),
        "graphs": ("program",),
        "program": ("program",),
    }
)
# By topic of TORCH_LOGS and torch._logging.set_logs: the categories about the same.
OF_TORCH: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "graph_breaks": ("breaks",),
        **dict.fromkeys(("recompiles", "recompiles_verbose"), ("recompiles",)),
        **dict.fromkeys(("guards", "verbose_guards"), ("guards",)),
        **dict.fromkeys(("graph", "graph_code", "graph_code_verbose"), ("graphs",)),
        "dynamo": tuple(CATEGORIES),
    }
)
# By topic about the internals of the other compiler: where to look instead.
NOT_HERE: Mapping[str, str] = MappingProxyType(
    {
        "bytecode": "no bytecode is made; FINELINE_LOGS=program shows the Python source of each program",
        "side_effects": "FINELINE_LOGS=program shows the writes of each program",
        "graph_sizes": "fineline.explain(f)(*args).graphs has the graphs",
        **dict.fromkeys(("trace_bytecode", "trace_call", "trace_source"), "fineline.explain(f)(*args) shows what a capture did"),
        **dict.fromkeys(("trace_shape_events", "graph_region_expansion", "hierarchical_compile"), "there is nothing of the kind"),
    }
)
# The most breadcrumbs: a program that makes code for ever would need them for ever.
MOST_PLACES = 10_000


class Logs:
    """The loggers. They print nothing unless the user sets up logging, or asks for logs in the environment: then to stderr."""

    def __init__(self, asked: str) -> None:
        self.log = logging.getLogger("fineline")
        self.loggers = {name: logging.getLogger(f"fineline.{name}") for name in CATEGORIES}
        self._said: set[tuple[str, str]] = set()
        # The categories that `follow` has turned on, with the former level of each logger.
        self._followed: dict[str, int] = {}
        self._prints = False
        names = [name.strip() for name in asked.split(",") if name.strip()]
        if names:
            self._print()
        for name in names:
            if name in self.loggers:
                self.loggers[name].setLevel(logging.DEBUG)
            else:
                self.log.warning("FINELINE_LOGS: there is no %r; known are %s", name, ", ".join(CATEGORIES))

    def follow(self, categories: Collection[str]) -> None:
        """Logs these categories too, from now on, and no longer those that only the last call has turned on."""
        for name in [name for name in self._followed if name not in categories]:
            self.loggers[name].setLevel(self._followed.pop(name))
        for name in categories:
            if name not in self._followed and self.loggers[name].level != logging.DEBUG:
                self._followed[name] = self.loggers[name].level
                self.loggers[name].setLevel(logging.DEBUG)
                self._print()

    def _print(self) -> None:
        if self._prints:
            return
        self._prints = True
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        # After the application has set up logging itself, its handlers print the records.
        handler.addFilter(lambda record: not logging.getLogger().handlers)
        self.log.addHandler(handler)

    def hear(self, event: Event) -> None:
        # Other skipped code has a graph break with its breadcrumb; a call of a region in a with disable() block is not a break.
        if event.users_rule and (event.kind in ("break", "eager") or (event.kind == "skipped" and event.id == "FL406")):
            self._breadcrumb(event)
        for name, kinds in CATEGORIES.items():
            if event.kind in kinds and self.loggers[name].isEnabledFor(logging.DEBUG):
                text = _TEXTS[name](event)
                if text:
                    self.loggers[name].debug("%s", text)

    def _breadcrumb(self, event: Event) -> None:
        """Logs, once per place, that a mark or rule makes it run eagerly, and where that was declared."""
        key = (event.where, event.rule)
        if key not in self._said and len(self._said) < MOST_PLACES and self.log.isEnabledFor(logging.INFO):
            self._said.add(key)
            self.log.info("%s runs eagerly: %s; the rule: %s", event.where, event.reason, event.rule)

    def forget(self) -> None:
        """Forgets the places that have been reported, so that they are reported again."""
        self._said.clear()


def _one(event: Event) -> str:
    rule = f"; the rule: {event.rule}" if event.rule else ""
    return "\n    from ".join([f"{event.region}: {event}{rule}", "\n         ".join(folded(event.stack))][: 1 + has_callers(event.stack)])


def _guards(event: Event) -> str:
    return "\n  ".join([f"{event.region}: {event}", *map(str, event.detail["program"]().guards)])


def _graph(event: Event) -> str:
    code = event.detail["program"]().give_code().code
    return f"{event.region}: {event}\n{code.strip()}" if code else ""


def _program(event: Event) -> str:
    return f"{event.region}: {event}\n{event.detail['program']().source.strip()}"


_TEXTS = MappingProxyType({"breaks": _one, "recompiles": _one, "guards": _guards, "graphs": _graph, "program": _program})

LOGS = Logs(os.environ.get("FINELINE_LOGS", ""))
