"""Which rule decides about a target: the more specific selector, then the inner scope, then the later declaration."""

from __future__ import annotations

import fnmatch
import functools
import os
import re
import sys
import types
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Any

from fineline.kinds import is_a
from fineline.policy.break_rules import VERB, BreakRules
from fineline.policy.marks import MARKS
from fineline.policy.policy import Policy
from fineline.policy.rule import BLOCK, BUILT_IN, PROCESS, REGION, Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.selector import APPLY, OBJECT, Identity, Selector, describe, file_matcher, is_looked_into, loaded, parts, stands_for

UNSEEN: Any = object()
LRU_TYPE = type(functools.lru_cache(lambda: None))
DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


class Rules:
    """The rules of some nested policies, by what they select. The order is from outside in: what comes later stands before."""

    def __init__(self, rules: Iterable[Rule], fired: Counter[Rule] | None = None) -> None:
        self.all = tuple(rules)
        # Whether one of them may make a call an error, which is to leave nothing behind.
        self.refuse = any([rule.verb in ("forbid", "allow") and rule.declared for rule in self.all])
        self._verbs = frozenset([rule.verb for rule in self.all])
        # How often each rule has decided something; those that never did are there too.
        self.fired: Counter[Rule] = Counter() if fired is None else fired
        for rule in self.all:
            self.fired.setdefault(rule, 0)
        self._breaks = BreakRules([rule for rule in self.all if rule.verb == VERB])
        # What is selected as itself, and by a name that stands for it.
        self.exact, self.named = Table(), Table()
        self.names: dict[str, Rule] = {}
        # Names in modules that are not loaded yet.
        self._later: list[Rule] = []
        # By ("operator", name) or ("dispatch", name).
        self.operators: dict[tuple[str, str], Rule] = {}
        self.files: list[tuple[Any, Rule]] = []
        globs: dict[str, list[tuple[int, int, Any, Rule]]] = {"name": [], "file": [], "operator": []}
        for n, rule in enumerate(self.all):
            s = rule.selector
            if rule.verb == VERB:
                continue
            if s.kind in Table.KINDS:
                self.exact.add(s, rule)
            elif s.kind == "name":
                self._add_name(rule)
            elif s.kind == "file":
                self.files.insert(0, (_matches_any(s.key), rule))
            elif s.kind == "glob":
                over, *patterns = s.key
                matches = _matches_any(patterns) if over == "file" else re.compile(fnmatch.translate(patterns[0])).match
                globs[over].append((s.length, n, matches, rule))
            else:
                self.operators[s.kind, s.key] = rule
        self.globs = {over: [(m, rule) for _, _, m, rule in sorted(found, key=lambda g: g[:2], reverse=True)] for over, found in globs.items()}
        self._by_file = bool(self.files or self.globs["file"])
        self._by_text = bool(self.names or self._later or self.globs["name"] or self._by_file)
        # Whether a rule selects what is called: most captures have none, and ask at each call.
        self._selects_calls = bool(self.exact) or self._by_text
        self._hits: list[Rule] = []
        # Whether a rule is about what an operator dispatches to, which takes a trial run to know.
        kinds = {kind for kind, _ in (*self.operators, *MARKS.operators)}
        self.by_dispatch = "dispatch" in kinds or bool(self.globs["operator"])
        # What calls come down to, by function and kinds of arguments; the function is held, as its id is in the key.
        self.dispatched: dict[tuple, tuple[Any, frozenset[str]]] = {}
        self._found: dict[tuple, Rule | None] = {}
        self._held: dict[int, tuple[Any, Rule | None]] = {}
        self._spellings: dict[str, tuple[str, ...]] = {}
        self.allowed_by_torch = allowed_by_torch()

    def _add_name(self, rule: Rule) -> None:
        """Selects the object that a dotted name refers to, and everything that has this name or is defined in it."""
        name = rule.selector.key
        self.names[name] = rule
        selected = list(stands_for(name))
        if not selected:
            self._later.append(rule)
        for s in selected:
            if s.kind == "name":
                self.names[s.key] = rule
            elif s.kind in Table.KINDS:
                self.named.add(s, rule)
                home = _home(s.key.obj) if s.kind != "method" else None
                if home is not None:
                    self.names[home] = rule
            elif rule.verb == "trace":
                # Not the operator, in all its spellings.
                self.named.add(s._replace(kind="object", key=Identity(loaded(name))), rule)
            else:
                self.operators[s.kind, s.key] = rule

    def _look_again(self) -> None:
        """Finds what the names stand for whose modules have been loaded since."""
        later, self._later = self._later, []
        for rule in later:
            self._add_name(rule)

    # -- functions, classes, modules -----------------------------------------------------------------------------------
    def decide(self, fn: Any, args: Any = ()) -> Rule | None:
        """Returns the rule for a call of ``fn``: a function, a class, or an object that is called."""
        if not self._selects_calls and not (MARKS.objects or MARKS.holders) and id(args[0] if fn is APPLY and args else fn) not in self.allowed_by_torch:
            return None
        t = type(fn)
        rule = MARKS.get(fn) if MARKS.objects else None
        exact = self.exact
        if rule is None and exact.objects:
            rule = exact.objects.get(id(fn))
        if t is types.FunctionType:
            if rule is None and args and (exact.by_holder or MARKS.holders):
                rule = self._of_holder(fn, args[0])
            if rule is None and exact.parts:
                rule = exact.parts.get(id(fn))
        elif rule is None and t is not types.BuiltinFunctionType and (MARKS.objects or exact.classes):
            for k in self._kin(fn if is_a(fn, type) else t):
                rule = MARKS.get(k) or exact.class_rule(k)
                if rule is not None:
                    break
        if rule is None and self._by_text:
            rule = self._by_name(fn, t, args)
        if rule is None and self.allowed_by_torch and id(args[0] if fn is APPLY and args else fn) in self.allowed_by_torch:
            selector = Selector(OBJECT, "object", None, describe(fn))
            reason = "it carries the mark of torch._dynamo.allow_in_graph"
            rule = Rule("allow", selector, reason, "fineline/policy/decide.py", None, BUILT_IN)
        if rule is not None:
            self._hits.append(rule)
        return rule

    def known(self, fn: Any, args: Any = ()) -> Rule | None:
        """Returns the rule that `decide` gives; that it decides something is not counted."""
        rule = self.decide(fn, args)
        if rule is not None:
            self._hits.pop()
        return rule

    def told_to_look(self, fn: Any, args: Any) -> str:
        """Returns what to add to the reason why ``fn`` runs eagerly, if a rule has said that it is to be looked into."""
        own = (getattr(fn, "__module__", None) or "").partition(".")[0] == "fineline"
        # It has been counted when the call was met.
        rule = None if own else self.known(fn, args)
        return f"; there is nothing to look into for {rule}" if rule is not None and rule.verb == "trace" else ""

    def settle(self) -> None:
        """Counts what has been decided since the last time; not at each decision, as a rule's hash takes half of one."""
        self.fired.update(self._hits)
        self._hits.clear()

    def _of_holder(self, fn: Any, holder: Any) -> Rule | None:
        """Returns the rule or mark of an object or class that ``fn`` is a method of, when it is called with ``holder`` first."""
        if not MARKS.holders:
            return self.exact.of_holder(fn, holder)
        exact = self.exact
        rule = exact.method_rule(fn, holder) or MARKS.get(holder, fn)
        if rule is not None:
            return rule
        cls = holder if is_a(holder, type) else type(holder)
        found = MARKS.get(holder) or exact.objects.get(id(holder))
        if found is not None and defines(cls.__mro__, fn):
            return found
        for k in self._kin(cls):
            rule = MARKS.get(k) or exact.class_rule(k)
            if rule is not None and defines(k.__mro__, fn):
                return rule
        return None

    def _kin(self, cls: type) -> Iterable[type]:
        """Returns what of ``cls`` and the classes that it inherits from a rule or a mark is about, the nearest first."""
        if MARKS.holders:
            return [k for k in cls.__mro__ if self.exact.class_rule(k) is not None or id(k) in MARKS.objects]
        return self.exact.kin(cls)

    def _by_name(self, fn: Any, t: type, args: Any) -> Rule | None:
        if t is LRU_TYPE and is_a(getattr(fn, "__wrapped__", None), types.FunctionType):
            return self.named.objects.get(id(fn)) or self._by_name(fn.__wrapped__, types.FunctionType, args)
        if t is types.FunctionType:
            target, key = fn, (fn.__module__, fn.__qualname__, fn.__code__.co_filename)
            found = self._found.get(key, UNSEEN)
        else:
            target = fn if is_a(fn, type) or t is types.BuiltinFunctionType or t in DESCRIPTORS else t
            # Held as long as the rules, as its id is the key.
            key, found = (_module(target), getattr(target, "__qualname__", None), None), self._held.get(id(target), (None, UNSEEN))[1]
        if found is UNSEEN and self._later:
            self._look_again()
        rule = self.named.get(fn, t, args) if self.named else None
        if rule is not None:
            return rule
        if found is UNSEEN:
            found = self._look(*key, target)
            if t is types.FunctionType:
                self._found[key] = found
            else:
                self._held[id(target)] = target, found
        return found

    def _look(self, module: Any, qualname: Any, file: str | None, target: Any) -> Rule | None:
        dotted = f"{module}.{qualname}" if is_a(module, str) else str(qualname)
        # What capture looks into is in no graph: nothing is disallowed there.
        opaque = "disallow" not in self._verbs or not is_looked_into(target)
        name = dotted
        while name:
            rule = self.names.get(name)
            if rule is not None and (opaque or rule.verb != "disallow"):
                return rule
            name = name.rpartition(".")[0]
        if file is None and is_a(target, type) and is_a(module, str):
            file = getattr(sys.modules.get(module), "__file__", None)
        spellings = self._spelled(file) if file is not None and self._by_file else ()
        for matches, rule in self.files:
            if any(map(matches, spellings)):
                return rule
        best = [rule for matches, rule in self.globs["name"] if (opaque or rule.verb != "disallow") and matches(dotted)][:1]
        best += [rule for matches, rule in self.globs["file"] if any(map(matches, spellings))][:1]
        return max(best, key=lambda rule: rule.selector.length) if best else None

    def _spelled(self, file: str) -> tuple[str, ...]:
        """Returns the paths of a file that code was loaded from: as Python has it, tidied, and behind symbolic links."""
        found = self._spellings.get(file)
        if found is None:
            real = () if file.startswith("<") else (os.path.normpath(file) + "/" * file.endswith("/"), os.path.realpath(file))
            found = self._spellings[file] = tuple(dict.fromkeys((file, *real)))
        return found

    def decide_file(self, file: str | None, module: str | None = None) -> Rule | None:
        """Returns the rule for all code of a file, or of a Python module."""
        return self._look(module, "", file, None)

    def decide_names(self, pattern: str, file: str | None) -> Rule | None:
        """Returns the rule for whatever has a name that fits a pattern, in a module of that file, and is selected by nothing else."""
        module, _, name = pattern.rpartition(".")
        return self._look(module or None, name, file, None)

    def decide_break(self, error: str, code: types.CodeType, module: Any) -> Rule | None:
        """Returns the rule that declares a graph break of that id in that code, which is of the module of that name."""
        rule = self._breaks.decide(error, code, module)
        if rule is not None:
            self._hits.append(rule)
        return rule

    # -- operators -----------------------------------------------------------------------------------------------------
    def decide_operator(self, name: str | None, reached: Iterable[str], function: str | None = None) -> Rule | None:
        """Returns the rule for an operator of that name, which comes down to the ``reached`` ones of the dispatcher.

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


class Table:
    """The selections by identity of rules of one rank: objects, methods of an object or of a class, and classes with all that they define."""

    KINDS = ("object", "method", "class")

    def __init__(self) -> None:
        self.objects: dict[int, Rule] = {}
        self.methods: dict[tuple[int, int], Rule] = {}
        self.classes: dict[int, Rule] = {}
        # Classes in classes, and static methods, which are called without their class.
        self.parts: dict[int, Rule] = {}
        # Whether a class or an instance is selected: then a call's first argument matters.
        self.by_holder = False
        self._kin_of: dict[int, tuple[type, tuple[type, ...]]] = {}
        # What is selected is held, as its id is a key.
        self._kept: list[Any] = []

    def add(self, s: Selector, rule: Rule) -> None:
        self._kept.append(s.key)
        if s.kind == "method":
            self.methods[id(s.key[0].obj), id(s.key[1].obj)] = rule
            self.by_holder = True
            return
        target = s.key.obj
        if s.kind == "object":
            self.objects[id(target)] = rule
            self.by_holder = self.by_holder or type(target) is not types.FunctionType
            return
        self.by_holder = True
        self.classes[id(target)] = rule
        # What is allowed is the class's own call: `apply` of a torch.autograd.Function.
        for part in parts(target) if rule.verb != "allow" else ():
            self.parts[id(part)] = rule
            self._kept.append(part)

    def __bool__(self) -> bool:
        return bool(self._kept)

    def get(self, fn: Any, t: type, args: Any) -> Rule | None:
        """Returns the rule for a call of ``fn``, which is of type ``t``."""
        rule = self.objects.get(id(fn))
        if rule is not None:
            return rule
        if t is types.FunctionType:
            rule = self.of_holder(fn, args[0]) if args and self.by_holder else None
            return rule or self.parts.get(id(fn))
        if self.classes and t is not types.BuiltinFunctionType:
            for k in self.kin(fn if is_a(fn, type) else t):
                return self.class_rule(k)
        return None

    def of_holder(self, fn: Any, holder: Any) -> Rule | None:
        """Returns the rule of an object or class that ``fn`` is a method of, when it is called with ``holder`` first."""
        rule = self.method_rule(fn, holder)
        if rule is not None:
            return rule
        cls = holder if is_a(holder, type) else type(holder)
        rule = self.objects.get(id(holder))
        if rule is not None and defines(cls.__mro__, fn):
            return rule
        for k in self.kin(cls):
            if defines(k.__mro__, fn):
                return self.class_rule(k)
        return None

    def method_rule(self, fn: Any, holder: Any) -> Rule | None:
        """Returns the rule for the method ``fn`` of ``holder``, or of a class that it is of."""
        if not self.methods:
            return None
        own = [id(k) for k in (holder if is_a(holder, type) else type(holder)).__mro__]
        return next((rule for rule in [self.methods.get((id(fn), key)) for key in (id(holder), *own)] if rule is not None), None)

    def class_rule(self, cls: type) -> Rule | None:
        return self.classes.get(id(cls)) or self.parts.get(id(cls))

    def kin(self, cls: type) -> Iterable[type]:
        """Returns the classes with a rule that ``cls`` is or inherits from, the nearest first."""
        found = self._kin_of.get(id(cls))
        if found is None:
            # Held as long as the rules, as its id is the key.
            found = self._kin_of[id(cls)] = cls, tuple([k for k in cls.__mro__ if self.class_rule(k) is not None])
        return found[1]


def rules_now(region: Policy | None, fired: Counter[Rule] | None = None) -> Rules | None:
    """Returns the rules for a capture that this thread begins in a region of that policy; None: there are none at all.

    ``fired`` goes on counting how often each decides.
    """
    layers = [(PROCESS, SCOPE.process), (REGION, region), *[(BLOCK, block) for block in SCOPE.blocks]]
    rules = [rule._replace(scope=scope) for scope, policy in layers if policy is not None for rule in policy.rules]
    if MARKS.without:
        rules = [rule for rule in rules if rule.key != MARKS.without]
    return Rules(rules, fired) if rules or MARKS or allowed_by_torch() else None


def allowed_by_torch() -> Collection[int]:
    """Returns the ids of the functions that PyTorch's own ``allow_in_graph`` was given, which drops those that die."""
    known = getattr(sys.modules.get("torch._dynamo.trace_rules"), "_allowed_callable_ids", None)
    return getattr(known, "function_ids", None) or ()


def _module(target: Any) -> str | None:
    """Returns the module that a class, or a function in C, is found in."""
    if type(target) in DESCRIPTORS:
        target = target.__objclass__
    elif type(target) is types.BuiltinFunctionType and not is_a(target.__self__, (types.ModuleType, type(None))):
        target = target.__self__ if is_a(target.__self__, type) else type(target.__self__)
    return getattr(target, "__module__", None)


def defines(classes: tuple[type, ...], fn: Any) -> bool:
    """Returns whether one of these classes has ``fn`` for a method, class method or property."""
    name = getattr(fn, "__name__", "")
    for k in classes:
        # A lambda's own name tells nothing.
        for found in [k.__dict__.get(name)] if name != "<lambda>" else k.__dict__.values():
            if found is fn or any(getattr(found, part, None) is fn for part in ("__func__", "fget", "fset", "fdel", "func")):
                return True
    return False


def _home(obj: Any) -> str | None:
    """Returns the dotted name that a function or class has where it is defined, if it is found there."""
    module, name = getattr(obj, "__module__", None), getattr(obj, "__qualname__", None)
    dotted = f"{module}.{name}"
    return dotted if type(module) is str and type(name) is str and _plain(loaded(dotted)) is obj else None


def _plain(found: Any) -> Any:
    return found.__func__ if is_a(found, (staticmethod, classmethod)) else found


def _matches_any(patterns: Iterable[str]) -> Callable[[str], bool]:
    matchers = [file_matcher(pattern) for pattern in patterns]
    return matchers[0] if len(matchers) == 1 else lambda file: any(matches(file) for matches in matchers)
