"""Rules that calls in user code declare: a ``with disable():`` block, a ``graph_break()``."""

from __future__ import annotations

from fineline.policy.rule import BLOCK, MARK, Rule
from fineline.policy.selector import OBJECT, Selector


def block_rule(place: str, reason: str | None = None) -> Rule:
    """Returns the rule of a ``with disable():`` block at ``place``."""
    return Rule("disable", Selector(OBJECT, "spot", place, "with block"), reason or "", place, None, BLOCK)


def break_rule(place: str, message: str | None = None) -> Rule:
    """Returns the rule of a ``graph_break()`` at ``place``."""
    return Rule("graph_break", Selector(OBJECT, "spot", place, repr(message) if message else ""), "", place, None, MARK)
