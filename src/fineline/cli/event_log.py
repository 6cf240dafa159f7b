"""The report on a whole program: an explanation of each compiled function, made from its events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from fineline.policy.marks import MARKS
from fineline.report.costs import BreakCost
from fineline.report.events import Event, ShownRule
from fineline.report.explain import Explanation, rule_as_dict
from fineline.report.programs import KeptProgram
from fineline.report.tree import Node, joined


class Heard:
    """Collects all events of a process; functions of one name share an explanation."""

    def __init__(self) -> None:
        self._events: dict[str, list[Event]] = {}
        # The counter of each region, by its id. The entry keeps the counter of a region that is gone.
        self._fired: dict[str, dict[int, Counter[ShownRule]]] = {}
        self._programs: dict[str, list[KeptProgram]] = {}
        # The function that returns the calls of each region, and its counts of operators.
        self._trees: dict[str, dict[object, Callable[[], Node]]] = {}
        self._ran: dict[str, dict[object, Counter[str] | None]] = {}
        # The function that returns the costs of each region's graph breaks.
        self._costs: dict[str, dict[object, Callable[[], list[BreakCost]]]] = {}

    def hear(self, event: Event) -> None:
        events = self._events.setdefault(event.region, [])
        if event.kind == "rules":
            fired = event.detail["fired"]
            self._fired.setdefault(event.region, {})[id(fired)] = fired
        elif event.kind == "program":
            self._programs.setdefault(event.region, []).append(event.detail["program"]())
        elif event.kind == "tree":
            if event.detail["tree"] is not None:
                self._trees.setdefault(event.region, {})[event.detail["of"]] = event.detail["tree"]
            self._ran.setdefault(event.region, {})[event.detail["of"]] = event.detail["ran"]
            if "costs" in event.detail:
                self._costs.setdefault(event.region, {})[event.detail["of"]] = event.detail["costs"]
        else:
            events.append(event)

    def explanations(self) -> list[Explanation]:
        out = []
        for name, events in self._events.items():
            rules = sum(self._fired.get(name, {}).values(), Counter[ShownRule]())
            # A sum of counters drops zeros.
            for counter in self._fired.get(name, {}).values():
                for rule in counter:
                    rules.setdefault(rule, 0)
            tree = joined([give() for give in self._trees.get(name, {}).values()])
            costs = [cost for give in self._costs.get(name, {}).values() for cost in give()]
            out.append(Explanation(name, events, [], self._programs.get(name, []), self._counts(name), rules=rules, tree=tree, costs=costs))
        return out

    def _counts(self, name: str) -> Counter[str] | None:
        """Returns the operators that ran in calls of a function; None if those of some region were not counted."""
        counts = list(self._ran.get(name, {}).values())
        known = [counter for counter in counts if counter is not None]
        return sum(known, Counter[str]()) if known and len(known) == len(counts) else None

    def fired(self) -> Counter[ShownRule]:
        """Returns how often each rule and mark decided something, over all functions."""
        total: Counter[ShownRule] = Counter()
        for explanation in self.explanations():
            for rule, times in explanation.rules.items():
                total[rule] += times
        return total

    def facts(self, others: Sequence[Heard] = ()) -> dict[str, object]:
        """Returns all explanations, for JSON. ``rules`` sums over all functions and processes, and includes unused marks."""
        total: dict[str, tuple[ShownRule, int]] = {}
        counted = [(rule, times) for heard in (self, *others) for rule, times in heard.fired().items()]
        for rule, times in (*counted, *[(mark, 0) for mark in (*MARKS, *MARKS.blocks.values())]):
            # By key, because a rule is another object in each process.
            total[rule.key] = rule, times + total.get(rule.key, (rule, 0))[1]
        rules = [rule_as_dict(rule, times) for rule, times in total.values()]
        return {"functions": [e.as_dict() for e in self.explanations()], "rules": rules}
