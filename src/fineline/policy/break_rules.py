"""Rules that declare graph breaks: by the id of the break and the code that a selector names, not by lines."""

from __future__ import annotations

import difflib
import fnmatch
import os
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

from fineline.errors import BadRule
from fineline.kinds import is_a
from fineline.policy.rule import Rule
from fineline.policy.selector import Selector, exists, file_matcher, selectors, stands_for
from fineline.refusals import REFUSALS

VERB = "break"


def breaking(given: Mapping[str, object] | None, folder: Path | None = None) -> Iterator[tuple[str, Selector]]:
    """Returns the ids and selectors of ``Policy(breaks={id: selectors})``. Raises `BadRule`."""
    if given is not None and not hasattr(given, "items"):
        raise BadRule(f"breaks is a dict of ids and where they may break a graph, not a {type(given).__name__}", id="FL211")
    for error, value in (given or {}).items():
        check_id(error)
        for selector in selectors(value, folder):
            check_place(selector)
            yield error, selector


def check_id(error: object) -> None:
    """Raises `BadRule` if ``error`` is not the id of a graph break."""
    known = [name for name in REFUSALS if name.startswith(("FL4", "FL5"))]
    if error not in known:
        close = difflib.get_close_matches(str(error), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        step = "Give the id that the error, or fineline.explain(f)(*args).breaks, shows."
        raise BadRule(f"no graph break has the id {error!r}{hint}", id="FL211", next_step=step)


def check_place(selector: Selector) -> None:
    """Raises `BadRule` for a selector that does not select Python code."""
    operators = selector.kind in ("operator", "dispatch") or (selector.kind == "glob" and selector.key[0] == "operator")
    if operators or (selector.kind in ("object", "class", "method") and not any(True for _ in _codes(selector))):
        step = "Name the function, class, module or file whose lines may break the graph; disallow=[...] is for an operator."
        raise BadRule(f"{selector.text} is not Python code, in which a graph could break", id="FL211", next_step=step)


def place_text(code: types.CodeType, module: object) -> str:
    """Returns the text of a selector for the function of ``code``: the function's name, or else its file."""
    name = f"{module}.{code.co_qualname.partition('.<locals>')[0]}"
    return name if "<" not in name and exists(name) else code.co_filename


class BreakRules:
    """The rules that declare graph breaks, by id, the most specific last."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._by_id: dict[str, list[Rule]] = {}
        for rule in sorted(rules, key=lambda rule: (rule.selector.rank, rule.selector.length if rule.selector.kind == "glob" else 0)):
            self._by_id.setdefault(rule.error, []).append(rule)

    def decide(self, error: str, code: types.CodeType, module: object) -> Rule | None:
        """Returns the rule for a graph break with the id ``error`` in ``code`` of the module named ``module``, or None."""
        return next((rule for rule in reversed(self._by_id.get(error, ())) if _is_in(rule.selector, code, module)), None)


def _is_in(s: Selector, code: types.CodeType, module: object) -> bool:
    dotted = f"{module}.{code.co_qualname}"
    if s.kind == "file" or (s.kind == "glob" and s.key[0] == "file"):
        patterns = s.key if s.kind == "file" else s.key[1:]
        files = {code.co_filename, os.path.normpath(code.co_filename), os.path.realpath(code.co_filename)}
        return any(file_matcher(pattern)(file) for pattern in patterns for file in files)
    if s.kind == "glob":
        return fnmatch.fnmatchcase(dotted, s.key[1])
    if s.kind == "name" and (dotted == s.key or dotted.startswith(f"{s.key}.")):
        return True
    return any(_contains(outer, code) for outer in _codes(s))


def _codes(s: Selector) -> Iterator[types.CodeType]:
    """Yields the code of the functions that a selector names."""
    if s.kind == "name":
        yield from [code for meant in stands_for(s.text) if meant.kind != "name" for code in _codes(meant)]
    elif s.kind == "class":
        for k in s.key.obj.__mro__[:-1]:
            yield from [code for member in list(vars(k).values()) for code in _code_of(member)]
    elif s.kind == "method":
        yield from _code_of(s.key[0].obj)
    elif s.kind == "object":
        target = s.key.obj
        own = [vars(k) for k in type(target).__mro__[:-1]] if not is_a(target, types.FunctionType) else []
        yield from _code_of(target)
        yield from [code for members in own for member in list(members.values()) for code in _code_of(member)]


def _code_of(member: object) -> Collection[types.CodeType]:
    found = [getattr(member, part, None) for part in ("__func__", "fget", "fset", "fdel", "func", "__wrapped__")] if not is_a(member, type) else []
    return [fn.__code__ for fn in (member, *found) if is_a(fn, types.FunctionType)]


def _contains(outer: types.CodeType, code: types.CodeType) -> bool:
    """Returns whether ``code`` is ``outer``, or the code of a function, class body or comprehension in it."""
    return outer is code or any(_contains(inner, code) for inner in outer.co_consts if is_a(inner, types.CodeType))
