"""Decides which rule applies to a target: that with the more specific selector, then the inner scope, then the later declaration."""

from __future__ import annotations

import sys
import types
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from fineline.kinds import is_a
from fineline.policy.break_rules import VERB, BreakRules
from fineline.policy.marks import MARKS
from fineline.policy.operator_rules import OperatorRules
from fineline.policy.policy import Policy
from fineline.policy.rule import BLOCK, BUILT_IN, PROCESS, REGION, Rule
from fineline.policy.scope_stack import SCOPE
from fineline.policy.selection_table import Table, defines
from fineline.policy.selector import OBJECT, Selector, describe
from fineline.policy.text_rules import TextRules
from fineline.report.events import ShownRule
from fineline.torch_facts.callables import classify_torch
from fineline.torch_facts.releases import APPLY, applied


class Rules:
    """The rules of nested policies, by what they select. They are ordered from the outside in; a later rule takes precedence."""

    def __init__(self, rules: Iterable[Rule], fired: Counter[ShownRule] | None = None) -> None:
        self.all = tuple(rules)
        # Whether a rule may make a call an error; such a call must have no effect.
        self.refuse = any([rule.verb in ("forbid", "allow") and rule.declared for rule in self.all])
        # How often each rule has decided; includes those that never did.
        self.fired: Counter[ShownRule] = Counter() if fired is None else fired
        for rule in self.all:
            self.fired.setdefault(rule, 0)
        self._breaks = BreakRules([rule for rule in self.all if rule.verb == VERB])
        selecting = [rule for rule in self.all if rule.verb != VERB]
        self.exact, self.operators = Table(), OperatorRules(selecting)
        self._text = TextRules(selecting, self.operators)
        for rule in selecting:
            s = rule.selector
            if s.kind in Table.KINDS:
                self.exact.add(s, rule)
            elif s.kind in ("name", "file"):
                self._text.add(rule)
            elif s.kind != "glob":
                self.operators.add(s, rule)
        self._by_text = bool(self._text)
        # Whether a rule selects callables: most captures have none, and read this at each call.
        self._selects_calls = bool(self.exact) or self._by_text
        self.by_dispatch = self.operators.are_about_dispatch
        self.allowed_by_torch = allowed_by_torch()
        self._hits: list[Rule] = []
        # The number of those that `decisions` has returned.
        self._reported = 0

    # -- functions, classes, modules -----------------------------------------------------------------------------------
    def decide(self, fn: object, args: Sequence[object] = ()) -> Rule | None:
        """Returns the rule for a call of ``fn``: a function, a class, or another callable object."""
        if not self._selects_calls and not (MARKS.objects or MARKS.holders) and id(args[0] if fn is APPLY and args else fn) not in self.allowed_by_torch:
            return None
        t = types.FunctionType if fn is APPLY else type(fn)
        if t is types.BuiltinFunctionType and applied(fn) is not None:
            return None  # its call is one of `APPLY` with the class, about which it is asked then
        rule = MARKS.get(fn) if MARKS.objects else None
        exact = self.exact
        if rule is None and exact.objects:
            rule = exact.objects.get(fn)
        if t is types.FunctionType:
            if rule is None and args and (exact.by_holder or MARKS.holders):
                rule = self._of_holder(fn, args[0])
            if rule is None and exact.parts:
                rule = exact.parts.get(fn)
        elif rule is None and t is not types.BuiltinFunctionType and (MARKS.objects or exact.classes):
            for k in self._kin(fn if is_a(fn, type) else t):
                rule = MARKS.get(k) or exact.class_rule(k)
                if rule is not None:
                    break
        if rule is None and self._by_text:
            rule = self._text.decide(fn, t, args)
        # On an operator of PyTorch's, the mark says nothing new, and must not hide the rules about operators: tensordict marks `_foreach_copy_`.
        marked = self.allowed_by_torch and id(args[0] if fn is APPLY and args else fn) in self.allowed_by_torch
        # Nor does it on a query, which no graph holds: PyTorch itself marks `SDPAParams`, and what asks about them.
        if rule is None and marked and classify_torch(fn) not in ("op", "query"):
            selector = Selector(OBJECT, "object", None, describe(fn))
            reason = "it carries the mark of torch._dynamo.allow_in_graph"
            rule = Rule("allow", selector, reason, "fineline/policy/decide.py", None, BUILT_IN)
        if rule is not None:
            self._hits.append(rule)
        return rule

    def known(self, fn: object, args: Sequence[object] = ()) -> Rule | None:
        """Returns the rule of `decide`, but does not count the decision."""
        rule = self.decide(fn, args)
        if rule is not None:
            self._hits.pop()
        return rule

    def unused_trace_rule(self, fn: object, args: Sequence[object]) -> str:
        """Returns a text to add to the reason why ``fn`` runs eagerly, if a "trace" rule selects it; else empty."""
        own = (getattr(fn, "__module__", None) or "").partition(".")[0] == "fineline"
        # `decide` has counted the rule at the call.
        rule = None if own else self.known(fn, args)
        return f"; there is nothing to look into for {rule}" if rule is not None and rule.verb == "trace" else ""

    def decisions(self) -> Counter[ShownRule]:
        """Returns how often each rule has decided since the last call, those that have not included."""
        new, self._reported = self._hits[self._reported :], len(self._hits)
        return Counter({**dict.fromkeys(self.all, 0), **Counter(new)})

    def settle(self) -> None:
        """Counts the decisions since the last call. A count at each decision would take half as long as the decision."""
        self.fired.update(self._hits)
        self._hits.clear()
        self._reported = 0

    def _of_holder(self, fn: object, holder: object) -> Rule | None:
        """Returns the rule or mark of an object or class whose method ``fn`` is, for a call with ``holder`` as first argument."""
        if not MARKS.holders:
            return self.exact.of_holder(fn, holder)
        exact = self.exact
        rule = exact.method_rule(fn, holder) or MARKS.get(holder, fn)
        if rule is not None:
            return rule
        cls = holder if is_a(holder, type) else type(holder)
        found = MARKS.get(holder) or exact.objects.get(holder)
        if found is not None and defines(cls.__mro__, fn):
            return found
        for k in self._kin(cls):
            rule = MARKS.get(k) or exact.class_rule(k)
            if rule is not None and defines(k.__mro__, fn):
                return rule
        return None

    def _kin(self, cls: type) -> Iterable[type]:
        """Returns ``cls`` and its base classes, those with a rule or a mark, the nearest first."""
        if MARKS.holders:
            return [k for k in cls.__mro__ if self.exact.class_rule(k) is not None or id(k) in MARKS.objects]
        return self.exact.kin(cls)

    def decide_file(self, file: str | None, module: str | None = None) -> Rule | None:
        """Returns the rule for all code of a file, or of a Python module."""
        return self._text.look(module, "", file, None)

    def decide_names(self, pattern: str, file: str | None) -> Rule | None:
        """Returns the rule for objects in the module of ``file`` whose names match ``pattern`` and that no other rule selects."""
        module, _, name = pattern.rpartition(".")
        return self._text.look(module or None, name, file, None)

    def decide_break(self, error: str, code: types.CodeType, module: object) -> Rule | None:
        """Returns the rule that declares a graph break with the id ``error`` in ``code`` of the module named ``module``, or None."""
        rule = self._breaks.decide(error, code, module)
        if rule is not None:
            self._hits.append(rule)
        return rule

    # -- operators -----------------------------------------------------------------------------------------------------
    def decide_operator(self, name: str | None, reached: Iterable[str], function: str | None = None) -> Rule | None:
        """Returns the rule for the operator ``name``, which dispatches to the operators ``reached``.

        ``function``: the name of the called function, if an argument makes it another operator: ``F.relu(x, inplace=True)`` calls
        `F.relu`, and the operator ``aten::relu_``.
        """
        rule = self.operators.decide(name, reached, function)
        if rule is not None:
            self._hits.append(rule)
        return rule


def rules_now(region: Policy | None, fired: Counter[ShownRule] | None = None) -> Rules | None:
    """Returns the rules for a capture that this thread begins in a region with the policy ``region``; None if there are none.

    ``fired`` continues to count the decisions of each rule.
    """
    layers = [(PROCESS, SCOPE.process), (REGION, region), *[(BLOCK, block) for block in SCOPE.blocks]]
    rules = [rule._replace(scope=scope) for scope, policy in layers if policy is not None for rule in policy.rules]
    if MARKS.without:
        rules = [rule for rule in rules if rule.key != MARKS.without]
    return Rules(rules, fired) if rules or MARKS or allowed_by_torch() else None


def allowed_by_torch() -> Collection[int]:
    """Returns the ids of the functions that PyTorch's own ``allow_in_graph`` has marked; PyTorch drops those of dead functions."""
    known = getattr(sys.modules.get("torch._dynamo.trace_rules"), "_allowed_callable_ids", None)
    return getattr(known, "function_ids", None) or ()
