"""``why``: what becomes of a target when capture meets it, by which rule, and why."""

from __future__ import annotations

import pkgutil
import re
import types
from pathlib import Path
from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket

from fineline.capture.builtin_rules import builtin_rule, row
from fineline.capture.marked import trace_rule
from fineline.errors import BadRule
from fineline.graph.spellings import operator_name, packet_of
from fineline.kinds import is_a
from fineline.policy.decide import Rules, defines, rules_now
from fineline.policy.marks import torch_mark
from fineline.policy.policy import Policy
from fineline.policy.rule import Decision, Rule
from fineline.policy.selector import OPERATOR_TEXT, describe, files, loaded, of_object, overload_name


def why(target: Any, policy: Policy | None = None) -> Decision:
    """What capture does when it meets ``target``, in a region with ``policy``: the decision, its rule, the reason and the place.

    ``target`` is a function, method, class, module, operator, or a text: a dotted name, a file, an operator's name. What no rule
    of the user's selects is decided by a built-in rule. Raises `BadRule` for what does not exist.
    """
    rules = rules_now(policy) or Rules(())
    if type(target) is not str:
        of_object(target)  # says what selects nothing
        return Decision(describe(target), _of(rules, target, _holder(target)))
    if OPERATOR_TEXT.match(target):
        return Decision(target, _of(rules, _operator(target), None))
    if "/" in target or target.endswith(".py"):
        file = str(Path(target).resolve()) if Path(target).exists() else next(iter(files(target)), None)
        if file is None:
            raise BadRule(f"there is no file {target}", id="FL212")
        return Decision(target, rules.decide_file(file) or row("code"))
    try:
        found = pkgutil.resolve_name(target)
    except (ImportError, AttributeError, ValueError) as e:
        raise BadRule(f"there is no {target}: {e}", id="FL212") from None
    above = loaded(target.rpartition(".")[0])
    return Decision(target, _of(rules, found, above if is_a(above, type) else _holder(found)))


def _of(rules: Rules, target: Any, holder: Any) -> Rule:
    """``holder``: the class or object that a method is called on."""
    if is_a(target, types.ModuleType):
        return rules.decide_file(getattr(target, "__file__", None), target.__name__) or row("code")
    if is_a(target, (staticmethod, classmethod)):
        target = target.__func__
    if is_a(target, types.MethodType):
        target, holder = target.__func__, target.__self__
    if is_a(target, property):
        target = target.fget
    rule = rules.decide(target, () if holder is None else (holder,))
    if rule is None and is_a(target, types.FunctionType) and torch_mark(target) is not None:
        rule = trace_rule(rules, target)
    name = operator_name(target)
    if name is not None and (rule is None or rule.verb == "trace"):
        rule = rules.decide_operator(name, _reached(target)) or rule
    return rule or builtin_rule(target)


def _reached(op: Any) -> tuple[str, ...]:
    """What an operator surely comes down to; of other spellings it depends on the arguments."""
    if is_a(op, OpOverload):
        return overload_name(op), op._schema.name
    packet = packet_of(op)
    return (packet,) if packet is not None else ()


def _operator(text: str) -> OpOverload | OpOverloadPacket:
    namespace, op, *overload = re.split(r"::|\.", text.removeprefix("torch.ops."))[:3]
    try:
        packet = getattr(getattr(torch.ops, namespace), op)
        return getattr(packet, overload[0]) if overload else packet
    except AttributeError:
        raise BadRule(f"no operator {text} is registered", id="FL212") from None


def _holder(fn: Any) -> Any:
    """The class that a function is written in, if it is a method."""
    if not is_a(fn, types.FunctionType) or not is_a(fn.__module__, str):
        return None
    owner = loaded(f"{fn.__module__}.{fn.__qualname__.rpartition('.')[0]}") if "." in fn.__qualname__ else None
    return owner if is_a(owner, type) and defines(owner.__mro__, fn) else None
