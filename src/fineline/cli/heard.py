"""What became of a whole program: an explanation of each compiled function, made of the events as they come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fineline.policy.marks import MARKS
from fineline.policy.rule import Rule
from fineline.report.events import Event
from fineline.report.explain import Explanation, rule_as_dict


class Heard:
    """Hears all events of a process; functions of one name are told of together."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}
        # Each region counts for itself, and keeps the counter; so do those that are gone since.
        self._fired: dict[str, dict[int, Counter[Rule]]] = {}
        self._programs: dict[str, list[tuple[str, list[str]]]] = {}

    def hear(self, event: Event) -> None:
        events = self._events.setdefault(event.region, [])
        if event.kind == "rules":
            fired = event.detail["fired"]
            self._fired.setdefault(event.region, {})[id(fired)] = fired
        elif event.kind == "program":
            self._programs.setdefault(event.region, []).append((event.detail["source"], event.detail["guards"]()))
        else:
            events.append(event)

    def explanations(self) -> list[Explanation]:
        out = []
        for name, events in self._events.items():
            rules = sum(self._fired.get(name, {}).values(), Counter[Rule]())
            # A sum of counters drops zeros.
            for counter in self._fired.get(name, {}).values():
                for rule in counter:
                    rules.setdefault(rule, 0)
            programs = self._programs.get(name, [])
            guards = [guard for _, guards in programs for guard in guards]
            out.append(Explanation(name, events, [], guards, [source for source, _ in programs], None, rules=rules))
        return out

    def fired(self) -> Counter[Rule]:
        """How often each rule and mark decided something, over all functions."""
        total: Counter[Rule] = Counter()
        for explanation in self.explanations():
            for rule, times in explanation.rules.items():
                total[rule] += times
        return total

    def facts(self, others: Sequence[Heard] = ()) -> dict[str, Any]:
        """All of it, for JSON. ``rules``: over all functions, those of other processes too, the marks that nothing met included."""
        total: dict[str, tuple[Rule, int]] = {}
        counted = [(rule, times) for heard in (self, *others) for rule, times in heard.fired().items()]
        for rule, times in (*counted, *[(mark, 0) for mark in (*MARKS, *MARKS.blocks.values())]):
            # By what names a rule: in each process it is another object.
            total[rule.key] = rule, times + total.get(rule.key, (rule, 0))[1]
        rules = [rule_as_dict(rule, times) for rule, times in total.values()]
        return {"functions": [e.as_dict() for e in self.explanations()], "rules": rules}
