"""A rule: what it selects, what happens there, why, and where it was declared."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from fineline.policy.selector import RANKS, Selector

# From outside in: between equally specific rules the inner scope wins.
SCOPES = ("built-in", "process", "region", "block", "mark")
BUILT_IN, PROCESS, REGION, BLOCK, MARK = range(5)

VERBS: Mapping[str, str] = MappingProxyType(
    {
        "trace": "it is traced into",
        "disable": "it runs in Python, with everything it calls",
        "disable_frame": "its own frame runs in Python; what it calls is captured again",
        "disallow": "the graph breaks, it runs eagerly, and capture continues after it",
        "allow": "it is one call in the graph, and fineline does not look inside",
        "forbid": "meeting it during capture is an error",
        "constant": "it runs at capture time, and its result is baked in",
        "substitute": "another function is captured in its place",
        "break": "a graph break of that id is declared in its lines",
    }
)


class Rule(NamedTuple):
    """A rule. ``replacement``: the function that "substitute" captures, or the function that a marked wrapper wraps.

    ``error``: the id of the graph breaks that "break" declares.
    """

    verb: str
    selector: Selector
    reason: str = ""
    place: str = ""
    replacement: object = None
    scope: int = REGION
    error: str = ""

    def __hash__(self) -> int:
        # Without the replacement, which may be a callable without a hash.
        return hash((self.verb, self.selector.text, self.place))

    @property
    def head(self) -> str:
        """Returns the text of the verb with its selector and id."""
        return f"{self.verb}({self.selector.text}{self.error and ', '}{self.error})"

    @property
    def declared(self) -> bool:
        """Returns whether a user declared the rule."""
        return self.scope != BUILT_IN

    @property
    def key(self) -> str:
        """Returns a text that identifies the rule, also in another run of the program."""
        return f"{self.head} at {self.place}"

    def __repr__(self) -> str:
        return f"<Rule {self}, {SCOPES[self.scope]}>"

    def __str__(self) -> str:
        at = f" at {self.place}" if self.place else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.head}{at}{why}"


class Decision(NamedTuple):
    """The rule that decides about a target.

    ``inside``: the rules that decide otherwise about parts of the target. ``row``: its row in the table of C callables, if no user
    rule decides; `cpython/c_callables.py` explains the words.
    """

    target: str
    rule: Rule
    inside: tuple[Rule, ...] = ()
    row: str = ""

    @property
    def verb(self) -> str:
        return self.rule.verb

    @property
    def reason(self) -> str:
        return self.rule.reason

    @property
    def place(self) -> str:
        return self.rule.place

    @property
    def scope(self) -> str:
        return SCOPES[self.rule.scope]

    def __repr__(self) -> str:
        return f"<Decision on {self.target}: {self.verb}, by {self.rule!r}>"

    def __str__(self) -> str:
        rule = self.rule
        lines = [f"{self.target}: {rule.verb} ({VERBS[rule.verb]})"]
        lines.append(f"  rule   {rule.verb}({rule.selector.text}), {self.scope}, selects by {RANKS[rule.selector.rank]}")
        if rule.reason:
            lines.append(f"  reason {rule.reason}")
        if rule.place:
            lines.append(f"  at     {rule.place}")
        if self.row:
            lines.append(f"  row    {self.row}")
        lines += [f"  inside {other}" for other in self.inside]
        return "\n".join(lines)
