"""The rules that may keep a culprit eager: on its operators, or on the functions around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from fineline.bisection.facts import GraphFacts, Operator
from fineline.errors import BadRule
from fineline.policy.policy import Policy, check_rules, selectors_for
from fineline.policy.rule import Rule
from fineline.policy.selector import NAME, Selector


class EagerRule(NamedTuple):
    """A rule that keeps code eager. ``name``: what it selects, as in a policy file."""

    verb: str
    name: str

    def __str__(self) -> str:
        return f'{self.verb} = ["{self.name}"]'

    @property
    def is_writable(self) -> bool:
        """Returns whether a policy file can contain it: names of functions in functions are not looked up."""
        return "<" not in self.name

    def rules(self, reason: str) -> tuple[Rule, ...]:
        """Returns the rules of a policy; raises `BadRule` if there is nothing of that name, or nothing for the verb."""
        if self.is_writable:
            found = tuple([Rule(self.verb, s, reason) for s in selectors_for(self.verb, self.name)])
        else:
            found = (Rule(self.verb, Selector(NAME, "name", self.name, self.name), reason),)
        check_rules(found)
        return found


def policy_of(rules: Sequence[EagerRule], reason: str) -> Policy:
    return Policy.of(tuple([rule for eager in rules for rule in eager.rules(reason)]))


def policy_text(rules: Sequence[EagerRule]) -> str:
    """Returns the text of a policy file with these rules."""
    by_verb: dict[str, list[str]] = {}
    for rule in rules:
        by_verb.setdefault(rule.verb, []).append(f'"{rule.name}"')
    return "".join([f"{verb} = [{', '.join(names)}]\n" for verb, names in by_verb.items()])


def rules_for(culprits: Sequence[Operator], graphs: Sequence[GraphFacts], may: Callable[[EagerRule], bool]) -> list[EagerRule]:
    """Returns the rules that keep one of these operators eager, those first that keep the fewest operators of all graphs eager.

    The compiled function itself comes last. ``may``: whether a rule can be made.
    """
    everywhere = [operator for graph in graphs for operator in graph.operators]
    counted: dict[EagerRule, int] = {}
    for rule, is_root in [found for operator in culprits for found in _around(operator)]:
        kept = sum(keeps(rule, operator) for operator in everywhere)
        counted[rule] = max(counted.get(rule, 0), len(everywhere) + 1 if is_root else kept)
    return [rule for rule in sorted(counted, key=counted.__getitem__) if may(rule)]


def _around(operator: Operator) -> Iterator[tuple[EagerRule, bool]]:
    """Yields the rules that keep an operator eager, and whether each selects the compiled function."""
    if operator.name:
        yield EagerRule("disallow", operator.name), False
    for place in operator.stack:
        yield EagerRule("disable", place.dotted), place is operator.stack[-1]


def keeps(rule: EagerRule, operator: Operator) -> bool:
    """Returns whether a rule keeps an operator eager."""
    if rule.verb == "disallow":
        return operator.name == rule.name
    return any(place.dotted == rule.name for place in operator.stack)


def can_be_made(rule: EagerRule) -> bool:
    """Returns whether something of that name is loaded, and the verb is for it."""
    try:
        rule.rules("")
    except BadRule:
        return False
    return True
