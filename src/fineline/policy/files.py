"""Reads policies from files: TOML with the keys of `Policy`, under ``[tool.fineline]`` in pyproject.toml or alone in a file."""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fineline.errors import BadRule, FinelineError
from fineline.kinds import is_a
from fineline.policy.break_rules import VERB, check_id, check_place
from fineline.policy.policy import KEYS, Policy, check_rules, check_substitute, selectors_for
from fineline.policy.rule import Rule
from fineline.policy.selector import GLOB, NAME, OPERATOR_TEXT, WILD, Selector, is_complete, operator_selector, selectors
from fineline.toml_file import TomlFile, toml_type

PYPROJECT = "pyproject.toml"


def load_policy(path: str | Path) -> Policy:
    """Returns the policy in a TOML file: the keys of `Policy`, under ``[tool.fineline]`` or at the top.

    Each rule is a text, or a table ``{select = "mypkg.io.*", reason = "..."}``; ``substitute`` is a table of dotted names (or of
    tables ``{by = "...", reason = "..."}``). Raises `BadRule`, with the file and the line, for a wrong key, a wrong type, and a
    selector that matches nothing.
    """
    return PolicyFile(Path(path)).policy()


def find_policy(start: Path) -> Path | None:
    """Returns the nearest pyproject.toml with a ``[tool.fineline]``, from a folder upward."""
    for folder in (start.resolve(), *start.resolve().parents):
        path = folder / PYPROJECT
        if path.is_file() and "fineline" in path.read_text(encoding="utf-8", errors="replace") and PolicyFile(path).keys:
            return path
    return None


class PolicyFile:
    """A policy file. ``keys``: the path to the policy's table.

    ``waiting``: errors, with texts, of rules for operators of libraries that are not loaded yet, or for names that the script may define.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: list[tuple[BadRule, str]] = []
        self._early = False
        self._file = TomlFile(path, lambda reason, where: BadRule(reason, id="FL215", where=where))
        plain = self._file.document.unwrap()
        self.keys: tuple[str, ...] = ("tool", "fineline") if is_a(plain.get("tool"), dict) and "fineline" in plain["tool"] else ()
        self.table: object = functools.reduce(lambda table, key: table[key], self.keys, plain)

    def place(self, *keys: str | int) -> str:
        """Returns the file and the line of the value at a path of keys."""
        return self._file.place(*self.keys, *keys)

    def wrong(self, reason: str, *keys: str | int) -> FinelineError:
        return self._file.wrong(reason, *self.keys, *keys)

    # -- rules ---------------------------------------------------------------------------------------------------------
    def policy(self, early: bool = False) -> Policy:
        """Returns the policy. ``early``: the program has not begun, so operators and names of the script may appear later."""
        self._early = early
        if self.path.name == PYPROJECT and not self.keys:
            raise BadRule(f"{self.path} has no [tool.fineline]", id="FL215", where=self._file.name)
        if not is_a(self.table, dict):
            raise BadRule("tool.fineline is a table", id="FL215", where=self._file.name)
        reason = self.table.get("reason", "")
        if not is_a(reason, str):
            raise self.wrong(f"a reason is a text, not {toml_type(reason)}", "reason")
        rules = [rule for key, value in self.table.items() if key != "reason" for rule in self._rules(key, value, reason)]
        check_rules(rules)
        return Policy.of(tuple(rules))

    def _rules(self, key: str, value: object, reason: str) -> Iterator[Rule]:
        if key not in (*KEYS, "breaks"):
            raise self.wrong(f"there is no key {key!r}; the keys are {', '.join(KEYS)}, breaks and reason", key)
        if key == "breaks":
            if not is_a(value, dict):
                raise self.wrong(f"breaks is a table of ids, not {toml_type(value)}", key)
            for error, places in value.items():
                yield from self._breaks(error, places, reason)
            return
        if key == "substitute":
            if not is_a(value, dict):
                raise self.wrong(f"substitute is a table of dotted names, not {toml_type(value)}", key)
            for original, by in value.items():
                yield from self._substitute(original, by, reason)
            return
        for text, why, place in self._entries((key,), value, reason):
            yield from [Rule(key, selector, why, place) for selector in self._selectors(text, place, key)]

    def _breaks(self, error: str, value: object, reason: str) -> Iterator[Rule]:
        """Yields the rules that declare graph breaks of one id."""
        for text, why, place in self._entries(("breaks", error), value, reason):
            try:
                check_id(error)
                for selector in self._selectors(text, place, VERB):
                    check_place(selector)
                    yield Rule(VERB, selector, why, place, error=error)
            except BadRule as e:
                e.where = place
                raise

    def _entries(self, path: tuple[str, ...], value: object, reason: str) -> Iterator[tuple[str, str, str]]:
        """Yields the text, reason and place of each rule at a path of keys."""
        items = [(i, item) for i, item in enumerate(value)] if is_a(value, list) else [(None, value)]
        for i, item in items:
            text, why, keys = self._entry(item, "select", reason, path if i is None else (*path, i))
            yield text, why, self.place(*keys)

    def _entry(self, item: object, name: str, reason: str, keys: tuple[str | int, ...]) -> tuple[str, str, tuple[str | int, ...]]:
        """Returns the text, the reason, and the path of the text for a rule: a text, or a table of a text and a reason."""
        if is_a(item, str):
            return item, reason, keys
        if not is_a(item, dict):
            raise self.wrong(f'a rule is a text, or {{{name} = "...", reason = "..."}}, not {toml_type(item)}', *keys)
        for k, v in item.items():
            if k not in (name, "reason"):
                raise self.wrong(f"there is no key {k!r} in a rule; its keys are {name} and reason", *keys, k)
            if not is_a(v, str):
                raise self.wrong(f"{k} is a text, not {toml_type(v)}", *keys, k)
        if name not in item:
            raise self.wrong(f"a rule needs {name}", *keys)
        return item[name], item.get("reason", reason), (*keys, name)

    def _selectors(self, text: str, place: str, verb: str) -> list[Selector]:
        try:
            return list(selectors_for(verb, text, self.path.resolve().parent))
        except BadRule as e:
            e.where = place
            if self._early and OPERATOR_TEXT.match(text) and not is_complete(text):
                self.waiting.append((e, text))
                return [operator_selector(text)]
            if self._early and text.startswith("__main__."):
                self.waiting.append((e, text))
                return [Selector(GLOB, "glob", ("name", text), text) if WILD.search(text) else Selector(NAME, "name", text, text)]
            raise

    def still_wrong(self) -> list[BadRule]:
        """Returns the errors of the waiting rules that are still unknown, when all operators have been registered."""
        return [e for e, text in self.waiting if not _known(text)]

    def unknown(self) -> list[str]:
        """Returns the texts of the waiting rules that are still unknown."""
        return [text for _, text in self.waiting if not _known(text)]

    def _substitute(self, original: str, by: object, reason: str) -> Iterator[Rule]:
        text, why, keys = self._entry(by, "by", reason, ("substitute", original))
        place = self.place(*keys)
        found = self._selectors(original, place, "substitute")
        try:
            replacement = _resolve(text)
            check_substitute(_resolve(original), replacement)
        except BadRule as e:
            e.where = place
            raise
        yield from [Rule("substitute", selector, why, place, replacement) for selector in found]


def _known(text: str) -> bool:
    try:
        return bool(list(selectors(text)))
    except BadRule:
        return False


def _resolve(name: str) -> Any:
    """Imports the module of a dotted name and returns the object of that name."""
    try:
        return pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError) as e:
        raise BadRule(f"there is no {name}: {e}", id="FL212") from None
