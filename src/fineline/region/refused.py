"""The errors for what a rule forbids, and for graph breaks where none may be."""

from __future__ import annotations

from typing import Any

from fineline.capture.builtin_rules import builtin_rule
from fineline.errors import Forbidden, Undeclared, Unsupported
from fineline.policy.selector import describe
from fineline.refusals import REFUSALS


def refused(error: str, reason: str, place: tuple[str, int], rule: str = "", breaks: str = "none", fn: Any = None) -> Unsupported:
    """The error for what a rule forbids, or for what would have been a graph break where none may be."""
    where = f"{place[0]}:{place[1]}"
    if error == "FL105":
        return Forbidden(reason, where=where, rule=rule)
    if error == "FL107":
        return Unsupported(reason, id=error, where=where, rule=rule)
    if error == "FL400":
        return Unsupported(reason, id="FL103", where=where, rule=rule)
    words = REFUSALS[error]
    if not rule and fn is not None:
        # A rule that is built in, then.
        found = builtin_rule(fn)
        rule = str(found) if found.verb in ("disable", "disallow") else ""
    text = f"{reason} ({error}: {words.title})"
    if breaks == "declared":
        step = f"Write the rule {_rule_for(error, fn, place)}. Or: {words.next_step}"
        return Undeclared(text, where=where, rule=rule or 'breaks="declared"', next_step=step)
    step = f"{words.next_step} Or take fullgraph=True away; fineline.explain(fn)(*args).breaks lists all breaks at once."
    return Unsupported(text, id="FL102", where=where, rule=rule, next_step=step)


def _rule_for(error: str, fn: Any, place: tuple[str, int]) -> str:
    """The rule that would declare a graph break."""
    if error.startswith("FL5") and fn is not None:
        return f'Policy(disallow=["{describe(fn)}"])'
    if fn is not None and callable(fn) and not str(getattr(fn, "__module__", "fineline")).startswith("fineline"):
        return f'Policy(disable=["{describe(fn)}"])'
    return f'Policy(disable=["{place[0]}"]), or call fineline.graph_break() there'
