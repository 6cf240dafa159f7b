"""Rules about operators: by the name of the called operator, and by the operators to which it dispatches."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable, Sequence

from fineline.policy.marks import MARKS
from fineline.policy.rule import Rule
from fineline.policy.selector import Selector


class OperatorRules:
    """The rules whose selector is an operator, or a glob over operators."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Takes the globs of ``rules``, all rules of a capture; `add` takes those about single operators, in their order."""
        self._globs = globs_over("operator", rules)
        # By ("operator", name) or ("dispatch", name).
        self._selected: dict[tuple[str, str], Rule] = {}
        # The operators to which calls dispatch, by function and kinds of arguments. The entry holds the function, whose id is in the key.
        self._dispatched: dict[tuple, tuple[object, frozenset[str]]] = {}
        self.is_empty = not self._globs

    def add(self, s: Selector, rule: Rule) -> None:
        self._selected[s.kind, s.key] = rule
        self.is_empty = False

    @property
    def are_about_dispatch(self) -> bool:
        """Returns whether a rule or mark is about operators of the dispatcher, which only a trial run of a call shows."""
        return any([kind == "dispatch" for kind, _ in (*self._selected, *MARKS.operators)]) or bool(self._globs)

    def dispatched(self, fn: object, kinds: tuple, run: Callable[[], frozenset[str]]) -> frozenset[str]:
        """Returns the operators to which a call of ``fn`` with arguments of these ``kinds`` dispatches; ``run`` finds them once."""
        # By identity: distinct C functions may compare equal.
        key = (id(fn), *kinds)
        found = self._dispatched.get(key)
        if found is None:
            found = self._dispatched[key] = (fn, run())
        return found[1]

    def decide(self, name: str | None, reached: Iterable[str], function: str | None) -> Rule | None:
        """Returns the rule for an operator; see `Rules.decide_operator`."""
        rule = None
        # An overload is more specific than its operator, and its name is longer.
        longest = sorted({*reached, *([name] if name is not None else [])}, key=len, reverse=True)
        for table in (MARKS.operators, self._selected):
            for dispatched in longest:
                rule = rule or table.get(("dispatch", dispatched))
            for called in (name, function):
                rule = rule or (table.get(("operator", called)) if called is not None else None)
        for matches, found in self._globs if rule is None else ():
            if any(matches(n) or matches(n.partition(".")[0]) for n in longest):
                rule = found
                break
        return rule


Matches = Callable[[str], object]


def globs_over(
    over: str, rules: Sequence[Rule], matcher: Callable[[Sequence[str]], Matches] | None = None
) -> list[tuple[Matches, Rule]]:
    """Returns the rules with a glob ``over`` names, files or operators, each with its matcher: longer globs first, then later rules."""
    found = []
    for n, rule in enumerate(rules):
        if rule.selector.kind == "glob" and rule.selector.key[0] == over:
            _, *patterns = rule.selector.key
            matches = matcher(patterns) if matcher is not None else re.compile(fnmatch.translate(patterns[0])).match
            found.append((rule.selector.length, n, matches, rule))
    return [(matches, rule) for _, _, matches, rule in sorted(found, key=lambda g: g[:2], reverse=True)]
