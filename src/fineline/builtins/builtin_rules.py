"""The built-in rules, in the form of user rules: they decide about all that no user rule selects. Their tables are a late module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fineline.import_thread import LateModule
from fineline.policy.rule import Rule

if TYPE_CHECKING:
    from fineline.builtins import callable_rules
else:
    callable_rules = LateModule("fineline.builtins.callable_rules")


def builtin_rules() -> tuple[Rule, ...]:
    """Returns all built-in rules: first one for each callable of the tables, then those for whole classes of callables."""
    return tuple(callable_rules.rows())
