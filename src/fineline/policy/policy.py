"""``Policy``: rules that are declared together, for a region, a block or the process."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Self

from fineline.errors import BadRule, caller
from fineline.kinds import is_a
from fineline.policy.break_rules import VERB, breaking
from fineline.policy.rule import Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.selector import (
    NAME,
    OBJECT,
    Identity,
    Selector,
    describe,
    is_c,
    is_looked_into,
    python_function,
    selectors,
    stands_for,
)

KEYS = ("disable", "disable_frame", "disallow", "allow", "forbid", "constant", "substitute", "trace")


class Policy:
    """Rules by verb. Each verb takes a selector or a list of them; ``substitute`` takes a dict of replacements; ``breaks`` takes a dict
    from ids of graph breaks to the code in which they are declared (``compile(..., breaks="declared")`` allows them there).

    A selector is a function, method, class, ``nn.Module`` class or instance, Python module, operator, or a text: a dotted name
    or glob (``"mypkg.io.*"``), a file or file glob (``"mypkg/data/**"``), an operator or operator glob (``"torch.ops.fbgemm.*"``).
    Immutable, comparable, hashable; ``a | b`` has the rules of both, those of ``b`` as the later ones. ``with policy:`` applies
    it to captures in the block, on this thread. Raises `BadRule` for a selector that matches nothing.
    """

    __slots__ = ("rules",)
    #: The rules, in their order.
    rules: tuple[Rule, ...]

    def __init__(
        self, *, disable: object = (), disable_frame: object = (), disallow: object = (), allow: object = (), forbid: object = (), constant: object = (),
        substitute: Mapping | None = None, trace: object = (), breaks: Mapping[str, object] | None = None, reason: str = "",
    ) -> None:  # fmt: skip
        place = caller()
        given = {
            "disable": disable, "disable_frame": disable_frame, "disallow": disallow, "allow": allow, "forbid": forbid,
            "constant": constant, "trace": trace,
        }  # fmt: skip
        if substitute is not None and not hasattr(substitute, "items"):
            raise BadRule(f"substitute is a dict of what is captured instead, not a {type(substitute).__name__}", id="FL214")
        if type(reason) is not str:
            raise BadRule(f"a reason is a text, not a {type(reason).__name__}", id="FL211")
        rules = [Rule(verb, s, reason, place) for verb, value in given.items() for s in selectors_for(verb, value)]
        for original, replacement in (substitute or {}).items():
            check_substitute(original, replacement)
            rules += [Rule("substitute", s, reason, place, replacement) for s in selectors(original)]
        rules += [Rule(VERB, s, reason, place, error=error) for error, s in breaking(breaks)]
        check_rules(rules)
        object.__setattr__(self, "rules", tuple(rules))

    @classmethod
    def of(cls, rules: tuple[Rule, ...]) -> Self:
        """Returns a policy of existing rules.

        :meta private:
        """
        made = object.__new__(cls)
        object.__setattr__(made, "rules", rules)
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Policy can't be changed; make another one, or compose two with |: {name}")

    def __or__(self, other: object) -> Policy:
        if not is_a(other, Policy):
            return NotImplemented
        return Policy.of(self.rules + other.rules)

    def _key(self) -> tuple:
        return tuple([(rule.verb, rule.error, rule.selector, id(rule.replacement), rule.reason) for rule in self.rules])

    def __eq__(self, other: object) -> bool:
        return is_a(other, Policy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __bool__(self) -> bool:
        return bool(self.rules)

    def __repr__(self) -> str:
        parts = []
        for verb in KEYS:
            texts = [rule.selector.text for rule in self.rules if rule.verb == verb]
            if texts:
                parts.append(f"{verb}=[{', '.join(texts)}]")
        places = [f"{rule.error}: {rule.selector.text}" for rule in self.rules if rule.verb == VERB]
        parts += [f"breaks={{{', '.join(places)}}}"] if places else []
        return f"Policy({', '.join(parts)})"

    def __enter__(self) -> Policy:
        SCOPE.enter(self)
        return self

    def __exit__(self, *exc: object) -> None:
        SCOPE.leave()


def selectors_for(verb: str, value: Any, folder: Path | None = None) -> Iterator[Selector]:
    """Yields the selectors of ``value`` for a verb; "trace" accepts Python code only."""
    if verb != "trace" or type(value) is Selector:
        yield from selectors(value, folder)
    elif type(value) in (list, tuple, set, frozenset):
        for item in value:
            yield from selectors_for(verb, item, folder)
    else:
        function = python_function(value)
        if function is not None and (function.__module__ or "").partition(".")[0] == "fineline":
            raise BadRule(f"{describe(function)} is fineline's own, and captured code only calls it", id="FL216")
        for s in selectors(value, folder):
            if s.kind in ("operator", "dispatch") and function is not None:
                # Select this function, not all spellings of the operator.
                s = Selector(NAME, "name", s.text, s.text) if type(value) is str else Selector(OBJECT, "object", Identity(function), s.text)
            elif s.kind in ("operator", "dispatch") or (s.kind == "glob" and s.key[0] == "operator") or is_c(value):
                raise BadRule(f"{s.text} is not Python code", id="FL216")
            yield s


def check_rules(rules: Collection[Rule]) -> None:
    """Raises `BadRule` for a rule that disallows something that is not an operator and that no other rule allows (as an opaque call)."""
    allowed = {rule.selector for rule in rules if rule.verb == "allow"}
    for rule in rules:
        if rule.verb == "disallow" and rule.selector not in allowed:
            check_disallowed(rule.selector)


def check_disallowed(selector: Selector) -> None:
    """Raises `BadRule` for Python code, which is not in a graph: the user should disable it instead.

    A Python module or a glob over names may also select operators: such a rule is about these only.
    """
    over_files = selector.kind == "file" or (selector.kind == "glob" and selector.key[0] == "file")
    if over_files or any(is_looked_into(target) for target in _selected(selector)):
        what = "is about Python code" if over_files else "is a Python function, class or module instance"
        raise BadRule(f"{selector.text} {what}, which capture traces into: it is not a node of a graph", id="FL213")


def _selected(selector: Selector) -> Iterator[object]:
    """Yields the functions, classes and objects of a selector, or those that its name refers to now."""
    if selector.kind == "name":
        yield from [target for s in stands_for(selector.text) if s.kind != "name" for target in _selected(s)]
    elif selector.kind in ("object", "class"):
        yield selector.key.obj
    elif selector.kind == "method":
        yield selector.key[0].obj


def check_substitute(original: Callable, replacement: object) -> None:
    """Raises `BadRule` if a replacement does not have the parameters of the original."""
    if not callable(replacement):
        raise BadRule(f"a {type(replacement).__name__} can't take the place of a function: {replacement!r:.80}", id="FL214")
    try:
        theirs, ours = inspect.signature(original), inspect.signature(replacement)
    except (TypeError, ValueError):
        return  # a C function may have no signature

    def fits(a: inspect.Parameter, b: inspect.Parameter) -> bool:
        # A positional-only parameter may have any name.
        same = b.kind in (a.kind, a.POSITIONAL_OR_KEYWORD) if a.kind is a.POSITIONAL_ONLY else (a.name, a.kind) == (b.name, b.kind)
        return same and repr(a.default) == repr(b.default)

    pairs = list(zip(theirs.parameters.values(), ours.parameters.values(), strict=False))
    if len(theirs.parameters) != len(ours.parameters) or not all([fits(a, b) for a, b in pairs]):
        raise BadRule(f"{replacement!r} takes {ours}, and what it stands for {theirs}", id="FL214")
