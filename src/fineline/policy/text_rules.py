"""Rules by texts: dotted names, files, and globs over both."""

from __future__ import annotations

import functools
import os
import sys
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fineline.identity import IdentityMap
from fineline.kinds import is_a
from fineline.policy.operator_rules import OperatorRules, globs_over
from fineline.policy.rule import Rule
from fineline.policy.selection_table import Table
from fineline.policy.selector import Identity, file_matcher, is_looked_into, loaded, stands_for
from fineline.torch_facts.releases import APPLY, APPLY_HOME

UNSEEN: Any = object()
LRU_TYPE = type(functools.lru_cache(lambda: None))
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


class TextRules:
    """The rules whose selector is a text, with the objects that the names refer to now. Decisions are cached."""

    def __init__(self, rules: Sequence[Rule], operators: OperatorRules) -> None:
        """Takes the globs of ``rules``, all rules of a capture; `add` takes those about names and files, in their order."""
        # The objects that names refer to; `add` passes operators among them to `operators`.
        self._named, self._operators = Table(), operators
        self._names: dict[str, Rule] = {}
        # The rules for names in modules that are not loaded yet.
        self._later: list[Rule] = []
        self._files: list[tuple[Callable[[str], object], Rule]] = []
        self._name_globs, self._file_globs = globs_over("name", rules), globs_over("file", rules, _matches_any)
        self._disallows = any([rule.verb == "disallow" for rule in rules])
        # Decisions: by module, name and file of functions; by identity of other objects.
        self._found: dict[tuple, Rule | None] = {}
        self._held = IdentityMap[Rule | None]()
        self._spellings: dict[str, tuple[str, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._names or self._name_globs or self._by_file)

    @property
    def _by_file(self) -> bool:
        return bool(self._files or self._file_globs)

    def add(self, rule: Rule) -> None:
        """Adds a rule about a name or a file, which takes precedence over those added so far."""
        if rule.selector.kind == "name":
            self._add_name(rule)
        else:
            self._files.insert(0, (_matches_any(rule.selector.key), rule))

    def _add_name(self, rule: Rule) -> None:
        """Selects the object that a dotted name refers to, and everything that has this name or is defined in it."""
        name = rule.selector.key
        self._names[name] = rule
        selected = list(stands_for(name))
        if not selected:
            self._later.append(rule)
        for s in selected:
            if s.kind == "name":
                self._names[s.key] = rule
            elif s.kind in Table.KINDS:
                self._named.add(s, rule)
                home = _home(s.key.obj) if s.kind != "method" else None
                if home is not None:
                    self._names[home] = rule
            elif rule.verb == "trace":
                # Select the function, not all spellings of the operator.
                self._named.add(s._replace(kind="object", key=Identity(loaded(name))), rule)
            else:
                self._operators.add(s, rule)

    def _look_again(self) -> None:
        """Looks up the names again whose modules may have been loaded since."""
        later, self._later = self._later, []
        for rule in later:
            self._add_name(rule)

    def decide(self, fn: Any, t: type, args: Sequence[object]) -> Rule | None:
        """Returns the rule for a call of ``fn``, which is of type ``t``."""
        if t is LRU_TYPE and is_a(getattr(fn, "__wrapped__", None), types.FunctionType):
            return self._named.objects.get(fn) or self.decide(fn.__wrapped__, types.FunctionType, args)
        if t is types.FunctionType:
            target, key = fn, APPLY_HOME if fn is APPLY else (fn.__module__, fn.__qualname__, fn.__code__.co_filename)
            found = self._found.get(key, UNSEEN)
        else:
            target = fn if is_a(fn, type) or t is types.BuiltinFunctionType or t in DESCRIPTORS else t
            key, found = (_module(target), getattr(target, "__qualname__", None), None), self._held.get(target, UNSEEN)
        if found is UNSEEN and self._later:
            self._look_again()
        rule = self._named.get(fn, t, args) if self._named else None
        if rule is not None:
            return rule
        if found is UNSEEN:
            module, name, file = key
            found = self.look(module, name, file, target)
            if t is types.FunctionType:
                self._found[key] = found
            else:
                self._held[target] = found
        return found

    def look(self, module: object, qualname: object, file: str | None, target: object) -> Rule | None:
        """Returns the rule for an object with this module and name that comes from ``file``."""
        dotted = f"{module}.{qualname}" if is_a(module, str) else str(qualname)
        # Code that a capture traces is not in a graph, so "disallow" is not about it.
        opaque = not self._disallows or not is_looked_into(target)
        name = dotted
        while name:
            rule = self._names.get(name)
            if rule is not None and (opaque or rule.verb != "disallow"):
                return rule
            name = name.rpartition(".")[0]
        if file is None and is_a(target, type) and is_a(module, str):
            file = getattr(sys.modules.get(module), "__file__", None)
        spellings = self._spelled(file) if file is not None and self._by_file else ()
        for matches, rule in self._files:
            if any(map(matches, spellings)):
                return rule
        best = [rule for matches, rule in self._name_globs if (opaque or rule.verb != "disallow") and matches(dotted)][:1]
        best += [rule for matches, rule in self._file_globs if any(map(matches, spellings))][:1]
        return max(best, key=lambda rule: rule.selector.length) if best else None

    def _spelled(self, file: str) -> tuple[str, ...]:
        """Returns the paths of a file that code was loaded from: as Python has it, normalized, and with symbolic links resolved."""
        found = self._spellings.get(file)
        if found is None:
            real = () if file.startswith("<") else (os.path.normpath(file) + "/" * file.endswith("/"), os.path.realpath(file))
            found = self._spellings[file] = tuple(dict.fromkeys((file, *real)))
        return found


def _module(target: Any) -> str | None:
    """Returns the name of the module of a class, or of a function in C."""
    if type(target) in DESCRIPTORS:
        target = target.__objclass__
    elif type(target) is types.BuiltinFunctionType and not is_a(target.__self__, (types.ModuleType, type(None))):
        target = target.__self__ if is_a(target.__self__, type) else type(target.__self__)
    return getattr(target, "__module__", None)


def _home(obj: object) -> str | None:
    """Returns the dotted name of a function or class in its own module, if the name refers to it; else None."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    dotted = f"{module}.{name}"
    return dotted if type(module) is str and type(name) is str and _plain(loaded(dotted)) is obj else None


def _plain(found: object) -> object:
    return found.__func__ if is_a(found, (staticmethod, classmethod)) else found


def _matches_any(patterns: Iterable[str]) -> Callable[[str], bool]:
    matchers = [file_matcher(pattern) for pattern in patterns]
    return matchers[0] if len(matchers) == 1 else lambda file: any(matches(file) for matches in matchers)
