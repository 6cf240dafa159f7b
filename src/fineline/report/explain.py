"""A readable description of a region's captures: graphs, breaks, eager stretches, guards, the program's source."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TypedDict

from torch.fx import GraphModule

from fineline.bytecode.asynchronous import let_pass
from fineline.errors import FinelineError
from fineline.exception_slots import error_text
from fineline.refusals import REFUSALS
from fineline.report.costs import BreakCost, Cost, count_text, total
from fineline.report.dynamo_explain import FamiliarNames
from fineline.report.events import Event, ShownRule
from fineline.report.output import shown_in_notebook, write_report
from fineline.report.page_facts import FunctionReport
from fineline.report.programs import KeptProgram
from fineline.report.tree import Node
from fineline.stacks import folded, has_callers

SECTIONS = (
    ("graph breaks", "break"), ("runs eagerly", "eager"), ("skipped, not traced into", "skipped"), ("captured again", "recompile"),
    ("captured for an equal callable", "shared"), ("captured by another process", "loaded"), ("saved, and does not fit", "stale"),
    ("not saved", "unsaved"), ("the cache was not used", "cache"),
    ("limits", "limit"), ("raised", "raised"), ("compared with eager code", "shadow"),
)  # fmt: skip

# Calls that the text shows; a large model makes hundreds.
MOST_CALLS = 40


class Explanation(FamiliarNames):
    """The result of ``explain(f)(*args)`` and ``report(compiled)``; its ``str()`` is for people.

    ``ran``: the operators that ran, by outcome. None: they were not counted; then the numbers are those of the operators that captures
    have recorded, and the number of operators in skipped code is unknown: None.
    """

    def __init__(
        self, name: str, events: list[Event], graphs: list[GraphModule], kept: Sequence[KeptProgram], ran: Mapping[str, int] | None,
        rules: Mapping[ShownRule, int] = MappingProxyType({}), marks: Sequence[ShownRule] = (), tree: Node | None = None,
        seconds: float = 0.0, place: tuple[str, int] = ("", 0), costs: Sequence[BreakCost] = (),
    ) -> None:  # fmt: skip
        #: The name of the function.
        self.name = name
        #: What happened, in its order.
        self.events = events
        #: The graphs that an explained call has captured; a report has none.
        self.graphs = graphs
        #: The programs with their guards and costs.
        self.kept = kept
        #: Whether the operators that ran were counted.
        self.counted = ran is not None
        recorded = {"captured": self.operators, "eager": self.eager_operators, "skipped": None}
        #: The number of operators by outcome: "captured", "eager", "skipped".
        self.ran: Mapping[str, int | None] = recorded if ran is None else {kind: ran.get(kind, 0) for kind in recorded}

        #: Each rule, and each mark that fired, with its count; the rules of a policy even if they never matched.
        self.rules = rules
        #: The marks in the process that did not fire.
        self.unmatched_marks = list(marks)
        #: The calls, each with its colour; None if they were not recorded.
        self.tree = tree
        #: The duration of the capture in seconds, with the call in it.
        self.seconds = seconds
        #: What each graph break has cost, in their order, if that was measured: in an explained call, and under ``fineline run --report``.
        self.costs = list(costs)
        #: By rule that fired: what it costs and saves, compared with the same call without it, or the error of that call. Empty
        #: unless ``explain(f, savings=True)`` has made these calls.
        self.savings: dict[ShownRule, Cost | Exception] = {}
        #: The file and line where the function is defined.
        self.place = (tree.file, tree.line) if tree is not None else place

    @property
    def guards(self) -> list[str]:
        """Returns the guards of all programs in words."""
        return [str(guard) for program in self.kept for guard in program.guards]

    @property
    def programs(self) -> list[str]:
        """Returns the source of each program."""
        return [program.source for program in self.kept]

    @property
    def program(self) -> str:
        """Returns the source of all programs."""
        return "\n".join(self.programs)

    @property
    def codes(self) -> list[str]:
        """Returns the code of the graphs."""
        return [code for program in self.kept if (code := program.give_code().code)]

    @property
    def unmatched(self) -> list[ShownRule]:
        """Returns the rules that never matched."""
        return [rule for rule, times in self.rules.items() if not times]

    @property
    def breaks(self) -> list[Event]:
        """Returns the graph breaks."""
        return [e for e in self.events if e.kind == "break"]

    @property
    def cost(self) -> Cost:
        """Returns what all graph breaks have cost."""
        return total(self.costs)

    def cost_of(self, rule: ShownRule) -> Cost:
        """Returns what the graph breaks have cost that a rule has asked for."""
        return total([cost for cost in self.costs if cost.place.rule == str(rule)])

    @property
    def whole_cost(self) -> Cost:
        """Returns the graph breaks, all graphs and guards, and the time of the eager calls."""
        return replace(self.cost, breaks=len(self.breaks), graphs=len(self.graphs_kept), guards=len(self.guards))

    @property
    def recompiles(self) -> list[Event]:
        """Returns the calls that were captured again because they fitted no program."""
        return [e for e in self.events if e.kind == "recompile"]

    @property
    def operators(self) -> int:
        """Returns the number of operators in all graphs that the backend has compiled."""
        return sum(e.detail["ops"] for e in self.events if e.kind == "graph")

    @property
    def eager_operators(self) -> int:
        """Returns the number of recorded operators that run one by one, because they were too few between two graph breaks."""
        return sum(e.detail.get("ops", 0) for e in self.events if e.kind == "eager")

    @property
    def headline(self) -> str:
        """Returns the numbers, in one line."""
        if not self.events:
            return f"{self.name}: nothing has been captured"
        eager = f", {count_text(self.eager_operators, 'operator')} outside of graphs" if self.eager_operators else ""
        shared = sum(e.kind == "shared" for e in self.events)
        equal = f", {count_text(shared, 'program')} of equal callables" if shared else ""
        loaded = sum(e.kind == "loaded" for e in self.events)
        saved = f", {count_text(loaded, 'saved program')}" if loaded else ""
        again = f", {count_text(len(self.recompiles), 'recompile')}" if self.recompiles else ""
        return (
            f"{self.name}: {count_text(len(self.graphs_kept), 'graph')}, {count_text(self.operators, 'operator')}{eager}, "
            f"{count_text(len(self.breaks), 'graph break')}{again}{equal}{saved}, {count_text(len(self.guards), 'guard')}"
        )

    def __repr__(self) -> str:
        return f"<Explanation of {self.headline}; print it to read more>"

    def __str__(self) -> str:
        lines = [self.headline]
        if self.counted and any(self.ran.values()):
            lines.append(f"  operators that ran: {', '.join([f'{n} {kind}' for kind, n in self.ran.items()])}")
        for i, e in enumerate(self.graphs_kept):
            places = [p for p in e.detail.get("places", []) if p[0]]
            lines.append(f"  graph {i}: {e.reason}")
            if places and places[0] != places[-1]:
                lines += [f"    from {_where(places[0])}", f"    to   {_where(places[-1])}"]
            elif places:
                lines.append(f"    at   {_where(places[0])}")
        for title, kind in SECTIONS:
            lines += self._section(title, [e for e in self.events if e.kind == kind])
        if self.rules or (self.unmatched_marks and self.events):
            lines.append("  rules:")
            for rule, n in self.rules.items():
                lines.append(f"    {count_text(n, 'time') if n else 'never matched'}: {rule}")
                lines += [f"      {text}" for text in self._texts_of_costs(rule, n)]
            others = f"    {count_text(len(self.unmatched_marks), 'mark')} of other code never matched: .unmatched_marks"
            lines += [others] if self.unmatched_marks else []
        if self.tree is not None:
            calls = list(self.tree.lines("    "))
            more = [f"    ... and {len(calls) - MOST_CALLS} more: print(explanation.tree)"] if len(calls) > MOST_CALLS else []
            lines += ["  calls:", *calls[:MOST_CALLS], *more]
        return "\n".join(lines)

    @property
    def graphs_kept(self) -> list[Event]:
        """Returns the events of graphs.

        :meta private:
        """
        return [e for e in self.events if e.kind == "graph"]

    @property
    def costs_known(self) -> bool:
        """Returns whether the costs of the graph breaks have been measured.

        :meta private:
        """
        return bool(self.costs) or not self.breaks

    def _section(self, title: str, events: list[Event]) -> list[str]:
        """Returns lines with each different event and its count, and the next step, once for each id."""
        if not events:
            return []
        lines = [f"  {title}:"]
        # Without the stack of skipped code, which the graph break at its call shows.
        found = Counter((e.id, e.reason, e.where, e.function, e.rule, e.stack if e.kind != "skipped" else ()) for e in events)
        said: set[str] = set()
        for (id_, reason, where, function, rule, stack), times in found.items():
            lines.append(f"    {id_} {reason}" + (f"  ({times} times)" if times > 1 else ""))
            lines.append(f"      at   {where}" + (f" in {function}" if function else "") if where else "")
            if has_callers(stack):
                lines.append("      from " + "\n           ".join(folded(stack)))
            if rule:
                lines.append(f"      rule {rule}")
            cost = total([cost for cost in self.costs if cost.place == (id_, reason, *_parted(where), rule, stack)])
            if title == SECTIONS[0][0] and cost.breaks:
                lines.append(f"      {_alone(cost)}")
            if id_ not in said and id_ in REFUSALS:
                said.add(id_)
                lines.append(f"      next {REFUSALS[id_].next_step}")
        return [line for line in lines if line]

    def _texts_of_costs(self, rule: ShownRule, times: int) -> list[str]:
        """Returns what the graph breaks of a rule cost, and what the rule costs and saves, each if it has been measured."""
        costs = [str(self.cost_of(rule))] if times and self.costs_known else []
        return costs + ([_comparison(self.savings[rule])] if rule in self.savings else [])

    def as_dict(self) -> dict[str, object]:
        """Returns the explanation without the graphs' modules, for JSON."""
        return {
            "name": self.name,
            "graphs": len(self.graphs_kept),
            "operators": self.operators,
            "eager_operators": self.eager_operators,
            "ran": dict(self.ran),
            "counted": self.counted,
            "events": [e.as_dict() for e in self.events],
            "guards": self.guards,
            "program": self.program,
            "programs": [program.as_dict() for program in self.kept],
            "seconds": self.seconds,
            "rules": [rule_as_dict(rule, times) for rule, times in self.rules.items()],
            "savings": [{"key": rule.key, "text": _comparison(found)} for rule, found in self.savings.items()],
            "costs": [cost.as_dict() for cost in self.costs],
            "tree": self.tree.as_list() if self.tree is not None else None,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a report to ``path``: a page if its name ends in ``.html``, JSON for ``.json``, otherwise text."""
        write_report(Path(path), [self.for_page()], self.as_dict)

    def for_page(self, process: str = "") -> FunctionReport:
        """Returns what a page shows. ``process``: that in which the function was called; "" for the first.

        :meta private:
        """
        numbers = {
            "graphs": len(self.graphs_kept), "operators": self.operators, "eager": self.eager_operators, "breaks": len(self.breaks),
            "recompiles": len(self.recompiles), "guards": len(self.guards),
        }  # fmt: skip
        own = self.name, process, self.headline, str(self), self.place
        ran = self.ran if self.counted else {}
        rule_costs = {rule: self._texts_of_costs(rule, times) for rule, times in self.rules.items()}
        return FunctionReport(*own, self.events, self.kept, ran, self.rules, self.tree, self.seconds, numbers, self.costs, rule_costs)

    def _repr_html_(self) -> str:
        return shown_in_notebook(self.for_page())


def _parted(where: str) -> tuple[str, int]:
    file, _, line = where.rpartition(":")
    return file, int(line or 0)


def difference(explanation: Explanation, without: Callable[[], Explanation]) -> Cost | Exception:
    """Returns what a rule costs and saves in an explained call. ``without`` explains the same call, made without it; its error is returned."""
    try:
        return explanation.whole_cost - without().whole_cost
    except Exception as e:
        let_pass(e)
        return e


def _comparison(found: Cost | Exception) -> str:
    """Returns what a rule costs and saves, in words."""
    if isinstance(found, FinelineError):
        return f"without it the call raises {type(found).__name__}: {found.reason}"
    if isinstance(found, Exception):
        return f"without it the call raises {error_text(found)}"
    return f"compared with a call without it: {found}"


def _alone(cost: Cost) -> Cost:
    """Returns the cost of a graph break without the graph break itself."""
    return replace(cost, breaks=0)


class RuleFacts(TypedDict):
    """A rule, and how often it decided something, for JSON."""

    verb: str
    selector: str
    reason: str
    place: str
    key: str
    times: int


def rule_as_dict(rule: ShownRule, times: int) -> RuleFacts:
    return {
        "verb": rule.verb, "selector": rule.selector.text, "reason": rule.reason, "place": rule.place, "key": rule.key, "times": times,
    }  # fmt: skip


def _where(place: tuple[str, int]) -> str:
    return f"{place[0]}:{place[1]}"
