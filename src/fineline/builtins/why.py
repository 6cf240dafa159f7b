"""``why``: what capture does with a target, by which rule, and for which reason."""

from __future__ import annotations

import fnmatch
import pkgutil
import re
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch._ops import OpOverload, OpOverloadPacket, _OpNamespace

from fineline.errors import BadRule
from fineline.import_thread import LateModule
from fineline.kinds import is_a
from fineline.policy.decide import Rules, rules_now
from fineline.policy.marks import torch_mark
from fineline.policy.policy import Policy
from fineline.policy.rule import Decision, Rule
from fineline.policy.selection_table import defines
from fineline.policy.selector import (
    OPERATOR_TEXT,
    WILD,
    Selector,
    callables,
    describe,
    file_matcher,
    files,
    find,
    loaded,
    of_object,
    overload_name,
    selectors,
)
from fineline.torch_facts.releases import method_parts
from fineline.torch_facts.spellings import operator_name, packet_of

if TYPE_CHECKING:
    from fineline.builtins import callable_rules, marks
else:
    callable_rules, marks = LateModule("fineline.builtins.callable_rules"), LateModule("fineline.builtins.marks")


def why(target: Any, policy: Policy | None = None) -> Decision:
    """Returns the decision about ``target`` in a region with ``policy``: what capture does with it, by which rule, why, and its place.

    ``target`` is a function, method, class, module, operator, or a text: a dotted name, a file or folder, an operator's name, or a glob
    over these. If no user rule selects it, a built-in rule decides. If it contains others (a module, a class, a folder, a namespace, a
    glob), the decision is about all that no other rule selects; ``inside`` lists these other rules. Raises `BadRule` if the target does
    not exist.
    """
    rules = rules_now(policy) or Rules(())
    if type(target) is not str:
        of_object(target)  # raises for an object that no rule can select
        rule = _of(rules, target, _holder(target))
        return _decision(describe(target), target, rule, _inside(rules, rule, _extent(target)))
    found = None
    if OPERATOR_TEXT.match(target):
        rule, extent = _of_operators(rules, target)
    elif "/" in target or target.endswith(".py"):
        rule, extent = _of_files(rules, target)
    elif WILD.search(target):
        rule, extent = _of_names(rules, target)
    else:
        found = _resolved(target)
        above = loaded(target.rpartition(".")[0])
        rule = _of(rules, found, above if is_a(above, type) or _is_instance(above) else _holder(found))
        extent = _extent(found)
    return _decision(target, found, rule, _inside(rules, rule, extent))


def _decision(name: str, target: Any, rule: Rule, inside: tuple[Rule, ...]) -> Decision:
    return Decision(name, rule, inside, "" if rule.declared else callable_rules.table_row(target))


def _resolved(name: str) -> Any:
    """Imports the module of a dotted name, and returns the object with that name."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as e:
        known, found, _ = find(name)
        if known:
            return found
        raise BadRule(f"there is no {name}: {e}", id="FL212") from None


def _is_instance(above: Any) -> bool:
    return above is not None and not is_a(above, (type, types.ModuleType))


def _of_files(rules: Rules, text: str) -> tuple[Rule, _Extent]:
    selector = next(selectors(text))  # raises if the text selects nothing
    patterns = selector.key if selector.kind == "file" else selector.key[1:]
    pattern = patterns[-1]
    if WILD.search(text):
        file = pattern
    else:
        found = Path(text) if Path(text).exists() else Path(next(files(pattern.removesuffix("/**"))))
        file = str(found.resolve()) + "/" * found.is_dir()
    return rules.decide_file(file) or callable_rules.row("code"), _Extent(file=pattern)


def _of_names(rules: Rules, text: str) -> tuple[Rule, _Extent]:
    next(selectors(text))  # raises if the text selects nothing
    fixed = WILD.split(text)[0].rpartition(".")[0]
    module = loaded(fixed) if fixed else None
    file = getattr(module, "__file__", None) if is_a(module, types.ModuleType) else None
    return rules.decide_names(text, file) or callable_rules.row("code"), _Extent(name=text)


def _of_operators(rules: Rules, text: str) -> tuple[Rule, _Extent]:
    selector = next(selectors(text))  # raises if the text selects nothing
    if selector.kind != "glob":
        return _of(rules, _operator(text), None), _Extent()
    pattern = selector.key[1]
    return rules.decide_operator(None, (pattern,)) or callable_rules.row("op"), _Extent(operator=pattern)


class _Extent(NamedTuple):
    """The contents of a target, as globs over names, files and operators."""

    name: str = ""
    file: str = ""
    operator: str = ""


def _extent(target: Any) -> _Extent:
    if is_a(target, _OpNamespace):
        return _Extent(operator=f"{target.name}::*")
    if is_a(target, types.ModuleType):
        return _Extent(name=f"{target.__name__}.*")
    return _Extent(name=f"{describe(target)}.*") if is_a(target, type) else _Extent()


def _inside(rules: Rules, decided: Rule, extent: _Extent) -> tuple[Rule, ...]:
    """Returns the rules, except the one that has decided, that select something in the target."""
    return tuple([rule for rule in rules.all if rule is not decided and _is_in(rule.selector, extent)])


def _is_in(s: Selector, extent: _Extent) -> bool:
    if s.kind == "file" or (s.kind == "glob" and s.key[0] == "file"):
        patterns = s.key if s.kind == "file" else s.key[1:]
        return bool(extent.file) and any(map(file_matcher(extent.file), patterns))
    if s.kind in ("operator", "dispatch") or (s.kind == "glob" and s.key[0] == "operator"):
        return bool(extent.operator) and fnmatch.fnmatchcase(s.key[1] if s.kind == "glob" else s.key, extent.operator)
    name = s.key[1] if s.kind == "glob" else s.text
    return bool(extent.name) and fnmatch.fnmatchcase(name, extent.name)


def _of(rules: Rules, target: Any, holder: Any) -> Rule:
    """Returns the rule for a target. ``holder``: the class or object that a method is called on."""
    if is_a(target, _OpNamespace):
        return rules.decide_operator(None, (f"{target.name}::*",)) or callable_rules.row("op")
    if is_a(target, types.ModuleType) and not is_a(target, OpOverloadPacket):
        return rules.decide_file(getattr(target, "__file__", None), target.__name__) or callable_rules.row("code")
    if is_a(target, (staticmethod, classmethod)):
        target = target.__func__
    if (parts := method_parts(target)) is not None:
        target, holder = parts
    target = next(callables(target), target)
    rule = rules.decide(target, () if holder is None else (holder,))
    if rule is None and is_a(target, types.FunctionType) and torch_mark(target) is not None:
        rule = marks.trace_rule(rules, target)
    name = operator_name(target)
    if name is not None and (rule is None or rule.verb == "trace"):
        rule = rules.decide_operator(name, _reached(target)) or rule
    return rule or callable_rules.builtin_rule(target)


def _reached(op: Any) -> tuple[str, ...]:
    """Returns the names of the operators that ``op`` calls for any arguments; none if that depends on the arguments."""
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
    """Returns the class that defines a method; None if ``fn`` is not a method."""
    if not is_a(fn, types.FunctionType) or not is_a(fn.__module__, str):
        return None
    owner = loaded(f"{fn.__module__}.{fn.__qualname__.rpartition('.')[0]}") if "." in fn.__qualname__ else None
    return owner if is_a(owner, type) and defines(owner.__mro__, fn) else None
