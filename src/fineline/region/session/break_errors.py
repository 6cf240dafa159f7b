"""The errors for calls that a rule forbids, and for graph breaks where none is allowed."""

from __future__ import annotations

import operator
import types
from types import MappingProxyType
from typing import Any

from torch import Tensor

from fineline.builtins.callable_rules import builtin_rule
from fineline.errors import Forbidden, Undeclared, Unsupported
from fineline.frames.graph_breaks import GraphBreak
from fineline.kinds import is_a
from fineline.policy.inline_rules import break_rule
from fineline.policy.selector import describe
from fineline.refusals import REFUSALS
from fineline.stacks import StackPlace


def refused(
    error: str, reason: str, place: tuple[str, int], rule: str = "", breaks: str = "none", fn: Any = None, stack: tuple[StackPlace, ...] = (),
    within: str = "",
) -> Unsupported:  # fmt: skip
    """Returns the error for a forbidden call, or for a graph break where none is allowed. ``within``: a selector for the code."""
    where = f"{place[0]}:{place[1]}"
    if error == "FL105":
        return Forbidden(reason, where=where, rule=rule, stack=stack)
    if error == "FL107":
        return Unsupported(reason, id=error, where=where, rule=rule, stack=stack)
    if error == "FL400":
        return Unsupported(reason, id="FL103", where=where, rule=rule, stack=stack)
    words = REFUSALS[error]
    rule = rule or built_in_rule(fn)
    text = f"{reason} ({error}: {words.title})"
    if breaks == "declared":
        here = f'; for this reason and place alone, Policy(breaks={{"{error}": ["{within}"]}})' if within else ""
        step = f"Write the rule {_rule_for(error, fn, place)}{here}. Or: {words.next_step}"
        return Undeclared(text, where=where, rule=rule or 'breaks="declared"', next_step=step, stack=stack)
    step = f"{words.next_step} Or remove fullgraph=True; fineline.explain(fn, fullgraph=False)(*args).breaks lists all breaks at once."
    return Unsupported(text, id="FL102", where=where, rule=rule or _entry(error), next_step=step, stack=stack)


# By builtin that reads a tensor: the tensor's method that it calls.
_READERS = MappingProxyType(
    {bool: Tensor.__bool__, int: Tensor.__int__, float: Tensor.__float__, complex: Tensor.__complex__, operator.index: Tensor.__index__}
)


def built_in_rule(fn: Any, args: tuple = ()) -> str:
    """Returns the text of the built-in rule because of which the graph breaks at a call of ``fn``; empty if there is none."""
    if is_a(fn, (type, types.BuiltinFunctionType)) and args and is_a(args[0], Tensor):
        fn = _READERS.get(fn, fn)
    found = builtin_rule(fn) if fn is not None else None
    return str(found) if found is not None and found.verb in ("disable", "disallow") else ""


def deciding_rule(graph_break: GraphBreak, place: tuple[str, int]) -> tuple[str, bool]:
    """Returns the text of the rule that decides a graph break, with its place, and whether it is fineline's own.

    It is a user's rule or mark, a built-in rule about the callable, or else the entry for the graph break's id.
    """
    rule = named_rule(graph_break, place)
    users = graph_break.error == "FL401" or (graph_break.rule and not graph_break.rule.startswith("built-in"))
    return rule or _entry(graph_break.error), not users


def named_rule(graph_break: GraphBreak, place: tuple[str, int]) -> str:
    """Returns the text of the rule or mark that decides a graph break, or of the built-in rule about the callable; "" if there is none."""
    if graph_break.error == "FL401":
        return graph_break.rule or str(break_rule(f"{place[0]}:{place[1]}", graph_break.message))
    return graph_break.rule or built_in_rule(graph_break.fn, graph_break.args_)


def _entry(error: str) -> str:
    return f"built-in {error} at fineline/refusals.toml: {REFUSALS[error].title}"


def _rule_for(error: str, fn: Any, place: tuple[str, int]) -> str:
    """Returns the rule that would declare a graph break."""
    if error.startswith("FL5") and fn is not None:
        return f'Policy(disallow=["{describe(fn)}"])'
    if fn is not None and callable(fn) and not str(getattr(fn, "__module__", "fineline")).startswith("fineline"):
        return f'Policy(disable=["{describe(fn)}"])'
    return f'Policy(disable=["{place[0]}"]), or call fineline.graph_break() there'
