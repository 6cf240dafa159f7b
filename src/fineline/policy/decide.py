"""Which rule decides about a target: the more specific selector, then the inner scope, then the later declaration."""

from __future__ import annotations

import fnmatch
import functools
import re
import sys
import types
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from fineline.kinds import is_a
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.rule import BLOCK, BUILT_IN, PROCESS, REGION, Rule
from fineline.policy.scopes import SCOPE
from fineline.policy.selector import APPLY, OBJECT, Selector, describe, file_matcher

UNSEEN: Any = object()
LRU_TYPE = type(functools.lru_cache(lambda: None))
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


class Rules:
    """The rules of some nested policies, by what they select. The order is from outside in: what comes later stands before."""

    def __init__(self, rules: Iterable[Rule], fired: Counter[Rule] | None = None) -> None:
        self.all = tuple(rules)
        # Whether one of them may make a call an error, which is to leave nothing behind.
        self.refuse = any([rule.verb in ("forbid", "allow") and rule.declared for rule in self.all])
        # How often each rule has decided something; those that never did are there too.
        self.fired: Counter[Rule] = Counter() if fired is None else fired
        for rule in self.all:
            self.fired.setdefault(rule, 0)
        self.objects: dict[int, Rule] = {}
        self.methods: dict[tuple[int, int], Rule] = {}
        self.classes: dict[int, Rule] = {}
        self.names: dict[str, Rule] = {}
        # By ("operator", name) or ("dispatch", name).
        self.operators: dict[tuple[str, str], Rule] = {}
        self.files: list[tuple[Any, Rule]] = []
        globs: dict[str, list[tuple[int, int, Any, Rule]]] = {"name": [], "file": [], "operator": []}
        for n, rule in enumerate(self.all):
            s = rule.selector
            if s.kind == "object":
                self.objects[id(s.key.obj)] = rule
            elif s.kind == "method":
                self.methods[id(s.key[0].obj), id(s.key[1].obj)] = rule
            elif s.kind == "class":
                self.classes[id(s.key.obj)] = rule
            elif s.kind == "name":
                self.names[s.key] = rule
            elif s.kind == "file":
                self.files.insert(0, (file_matcher(s.key), rule))
            elif s.kind == "glob":
                over, pattern = s.key
                matches = file_matcher(pattern) if over == "file" else re.compile(fnmatch.translate(pattern)).match
                globs[over].append((s.length, n, matches, rule))
            else:
                self.operators[s.kind, s.key] = rule
        self.globs = {over: [(m, rule) for _, _, m, rule in sorted(found, key=lambda g: g[:2], reverse=True)] for over, found in globs.items()}
        # Whether a class or an instance is selected: then a call's first argument matters.
        things = [rule.selector.key.obj for rule in self.objects.values()]
        self._by_holder = bool(self.classes or self.methods or any(type(thing) is not types.FunctionType for thing in things))
        self._by_text = bool(self.names or self.files or self.globs["name"] or self.globs["file"])
        self._hits: list[Rule] = []
        # Whether a rule is about what an operator dispatches to, which takes a trial run to know.
        kinds = {kind for kind, _ in (*self.operators, *MARKS.operators)}
        self.by_dispatch = "dispatch" in kinds or bool(self.globs["operator"])
        # What calls come down to, by function and kinds of arguments; the function is held, as its id is in the key.
        self.dispatched: dict[tuple, tuple[Any, frozenset[str]]] = {}
        self._named: dict[tuple, Rule | None] = {}
        self._held: dict[int, tuple[Any, Rule | None]] = {}
        self._kin_of: dict[int, tuple[type, tuple[type, ...]]] = {}
        self.allowed_by_torch = allowed_by_torch()

    # -- functions, classes, modules -----------------------------------------------------------------------------------
    def decide(self, fn: Any, args: Any = ()) -> Rule | None:
        """The rule for a call of ``fn``: a function, a class, or an object that is called."""
        t = type(fn)
        rule = MARKS.get(fn) if MARKS.objects else None
        if rule is None and self.objects:
            rule = self.objects.get(id(fn))
        if t is types.FunctionType:
            if rule is None and args and (self._by_holder or MARKS.holders):
                rule = self._of_holder(fn, args[0])
        elif rule is None and t is not types.BuiltinFunctionType and (MARKS.objects or self.classes):
            for k in self._kin(fn if is_a(fn, type) else t):
                rule = MARKS.get(k) or self.classes.get(id(k))
                if rule is not None:
                    break
        if rule is None and self._by_text:
            rule = self._by_name(fn, t)
        if rule is None and self.allowed_by_torch and id(args[0] if fn is APPLY and args else fn) in self.allowed_by_torch:
            selector = Selector(OBJECT, "object", None, describe(fn))
            reason = "it carries the mark of torch._dynamo.allow_in_graph"
            rule = Rule("allow", selector, reason, "fineline/policy/decide.py", None, BUILT_IN)
        if rule is not None:
            self._hits.append(rule)
        return rule

    def told_to_look(self, fn: Any, args: Any) -> str:
        """What to add to the reason why ``fn`` runs eagerly, if a rule has said that it is to be looked into."""
        own = (getattr(fn, "__module__", None) or "").partition(".")[0] == "fineline"
        rule = None if own else self.decide(fn, args)
        if rule is not None:
            # It has been counted when the call was met.
            self._hits.pop()
        return f"; there is nothing to look into for {rule}" if rule is not None and rule.verb == "trace" else ""

    def settle(self) -> None:
        """Counts what has been decided since the last time; not at each decision, as a rule's hash takes half of one."""
        self.fired.update(self._hits)
        self._hits.clear()

    def _of_holder(self, fn: Any, holder: Any) -> Rule | None:
        """The rule of an object or class that ``fn`` is a method of, when it is called with ``holder`` first."""
        if self.methods:
            rule = self.methods.get((id(fn), id(holder)))
            if rule is not None:
                return rule
        if MARKS.holders:
            rule = MARKS.get(holder, fn)
            if rule is not None:
                return rule
        cls = holder if is_a(holder, type) else type(holder)
        found = MARKS.get(holder) or self.objects.get(id(holder)) if MARKS.holders or self.objects else None
        if found is not None and defines(cls.__mro__, fn):
            return found
        for k in self._kin(cls):
            rule = MARKS.get(k) or self.classes.get(id(k))
            if rule is not None and defines(k.__mro__, fn):
                return rule
        return None

    def _kin(self, cls: type) -> Iterable[type]:
        """What of ``cls`` and the classes that it inherits from a rule or a mark is about, the nearest first."""
        if MARKS.holders:
            return [k for k in cls.__mro__ if id(k) in self.classes or id(k) in MARKS.objects]
        found = self._kin_of.get(id(cls))
        if found is None:
            # Held as long as the rules, as its id is the key.
            found = self._kin_of[id(cls)] = cls, tuple([k for k in cls.__mro__ if id(k) in self.classes])
        return found[1]

    def _by_name(self, fn: Any, t: type) -> Rule | None:
        if t is LRU_TYPE and is_a(getattr(fn, "__wrapped__", None), types.FunctionType):
            return self._by_name(fn.__wrapped__, types.FunctionType)
        if t is types.FunctionType:
            target, key = fn, (fn.__module__, fn.__qualname__, fn.__code__.co_filename)
        else:
            target = fn if is_a(fn, type) or t is types.BuiltinFunctionType or t in DESCRIPTORS else t
            held = self._held.get(id(target))
            if held is None:
                # Held as long as the rules, as its id is the key.
                held = self._held[id(target)] = target, self._look(_module(target), getattr(target, "__qualname__", None), None, target)
            return held[1]
        found = self._named.get(key, UNSEEN)
        if found is UNSEEN:
            found = self._named[key] = self._look(*key, target)
        return found

    def _look(self, module: Any, qualname: Any, file: str | None, target: Any) -> Rule | None:
        dotted = f"{module}.{qualname}" if is_a(module, str) else str(qualname)
        name = dotted
        while name:
            rule = self.names.get(name)
            if rule is not None:
                return rule
            name = name.rpartition(".")[0]
        if file is None and is_a(target, type) and is_a(module, str):
            file = getattr(sys.modules.get(module), "__file__", None)
        if file is not None:
            for matches, rule in self.files:
                if matches(file):
                    return rule
        best = [(len(rule.selector.text), rule) for matches, rule in self.globs["name"] if matches(dotted)][:1]
        best += [(len(rule.selector.text), rule) for matches, rule in self.globs["file"] if file is not None and matches(file)][:1]
        return max(best, key=lambda found: found[1].selector.length)[1] if best else None

    def decide_file(self, file: str | None, module: str | None = None) -> Rule | None:
        """The rule for all code of a file, or of a Python module."""
        return self._look(module, "", file, None)

    # -- operators -----------------------------------------------------------------------------------------------------
    def decide_operator(self, name: str | None, reached: Iterable[str], function: str | None = None) -> Rule | None:
        """The rule for an operator of that name, which comes down to the ``reached`` ones of the dispatcher.

        ``function``: the name of the function that is called, where an argument makes it another operator: ``F.relu(x, inplace=True)``
        is `F.relu`, and the operator ``aten::relu_``.
        """
        rule = None
        # An overload is more than its operator: its name is longer.
        longest = sorted({*reached, *([name] if name is not None else [])}, key=len, reverse=True)
        for table in (MARKS.operators, self.operators):
            for dispatched in longest:
                rule = rule or table.get(("dispatch", dispatched))
            for called in (name, function):
                rule = rule or (table.get(("operator", called)) if called is not None else None)
        for matches, found in self.globs["operator"] if rule is None else ():
            if any(matches(n) or matches(n.partition(".")[0]) for n in longest):
                rule = found
                break
        if rule is not None:
            self._hits.append(rule)
        return rule


def rules_now(region: Policy | None, fired: Counter[Rule] | None = None) -> Rules | None:
    """The rules for a capture that this thread begins in a region of that policy; None: there are none at all.

    ``fired`` goes on counting how often each decides.
    """
    layers = [(PROCESS, SCOPE.process), (REGION, region), *[(BLOCK, block) for block in SCOPE.blocks]]
    rules = [rule._replace(scope=scope) for scope, policy in layers if policy is not None for rule in policy.rules]
    if MARKS.without:
        rules = [rule for rule in rules if rule.key != MARKS.without]
    return Rules(rules, fired) if rules or MARKS or allowed_by_torch() else None


def allowed_by_torch() -> Collection[int]:
    """The ids of the functions that PyTorch's own ``allow_in_graph`` was given, which drops those that die."""
    known = getattr(sys.modules.get("torch._dynamo.trace_rules"), "_allowed_callable_ids", None)
    return getattr(known, "function_ids", None) or ()


def _module(target: Any) -> str | None:
    """The module that a class, or a function in C, is found in."""
    if type(target) in DESCRIPTORS:
        target = target.__objclass__
    elif type(target) is types.BuiltinFunctionType and not is_a(target.__self__, (types.ModuleType, type(None))):
        target = target.__self__ if is_a(target.__self__, type) else type(target.__self__)
    return getattr(target, "__module__", None)


def defines(classes: tuple[type, ...], fn: Any) -> bool:
    """Whether one of these classes has ``fn`` for a method, class method or property."""
    name = getattr(fn, "__name__", "")
    for k in classes:
        found = k.__dict__.get(name)
        if found is fn or any(getattr(found, part, None) is fn for part in ("__func__", "fget", "fset")):
            return True
    return False
